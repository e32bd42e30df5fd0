// SPDX-License-Identifier: Apache-2.0
//
// Every variant of run() has the same three steps over a list of (expert, rows):
//
//   gate_and_up    between = silu(x · gateᵀ) ∘ (x · upᵀ), one kernel for both products; or another
//                  function of the products, or of the second alone (kernels::Activation)
//   cast_between   the intermediate rows as operands of down
//   down           y = between · downᵀ
//
// A dense MLP is a list of one expert. In a group, each rank computes its panels (columns) of the
// first step for all rows, meets the others, and then computes its panels of the last step.
#include "model/parts/mlp.h"

#include <algorithm>

#include "base/try.h"

namespace wideep::model {

using kernels::PackedShape;

namespace {

int max_rows(std::span<const ExpertWork> work) {
  int max = 0;
  for (const ExpertWork& expert : work) max = std::max(max, expert.x.num_rows);
  return max;
}

}  // namespace

void MlpRunner::run(const Compute& compute, const weights::GatedMlp& mlp, const SourceRows& x,
                    float* y, size_t y_stride) {
  const ExpertWork work{mlp, compute.cast(mlp.gate.shape, x, cast_), {y, y_stride * sizeof(float)}};
  run(compute, std::span(&work, 1));
}

Result<const float*> MlpRunner::run(const Compute& compute, TensorGroup& group,
                                    const weights::GatedMlp& mlp, const SourceRows& x,
                                    const transport::Awaited& where) {
  const int hidden = mlp.down.n();
  float* y = group.joint<float>(JointBuffer::kOutput, static_cast<size_t>(x.num_rows) * hidden);
  if (x.num_rows == 0) return y;
  const ExpertWork one{mlp, compute.cast(mlp.gate.shape, x, cast_), {y, hidden * sizeof(float)}};
  const std::span work(&one, 1);
  place(work);
  auto* between = group.joint<std::byte>(JointBuffer::kBetween, between_bytes(mlp.down.shape));
  gate_and_up(compute, work, group.panels(mlp.gate.shape), between);
  WIDEEP_TRY(group.meet(written_between(between, work[0].mlp, group), where.named("gate and up")));
  cast_between(compute, work, between);
  down(compute, work, group.panels(mlp.down.shape));
  WIDEEP_TRY(group.meet(
      written_columns(y, hidden, sizeof(float), x.num_rows, group.panels(mlp.down.shape)),
      where.named("the feed-forward output")));
  return y;
}

void MlpRunner::run(const Compute& compute, std::span<const ExpertWork> work) {
  place(work);
  if (first_row_.back() == 0) return;
  auto* between = between_.get<std::byte>(between_bytes(work[0].mlp.down.shape));
  gate_and_up(compute, work, all_panels(work[0].mlp.gate), between);
  cast_between(compute, work, between);
  down(compute, work, all_panels(work[0].mlp.down));
}

Status MlpRunner::run(const Compute& compute, TensorGroup& group, std::span<const ExpertWork> work,
                      std::byte* between, const transport::Awaited& where) {
  place(work);
  const PackedShape& gate = work[0].mlp.gate.shape;
  const PackedShape& down_shape = work[0].mlp.down.shape;
  gate_and_up(compute, work, group.panels(gate), between);
  WIDEEP_TRY(group.meet(written_between(between, work[0].mlp, group),
                        where.named("the experts' gate and up")));
  cast_between(compute, work, between);
  down(compute, work, group.panels(down_shape));
  return {};
}

// This rank's columns of the intermediate rows.
transport::Written MlpRunner::written_between(const std::byte* between,
                                              const weights::GatedMlp& mlp,
                                              const TensorGroup& group) const {
  const PackedShape& down = mlp.down.shape;
  return written_columns(between, down.k, dtype_bytes(kernels::row_dtype(down.format)),
                         static_cast<int64_t>(first_row_.back()), group.panels(mlp.gate.shape));
}

// The intermediate rows of all experts lie one after the other in one buffer.
void MlpRunner::place(std::span<const ExpertWork> work) {
  first_row_.assign(1, 0);
  inputs_.clear();
  for (const ExpertWork& expert : work) {
    first_row_.push_back(first_row_.back() + expert.x.num_rows);
    inputs_.push_back(expert.x);
  }
}

size_t MlpRunner::between_bytes(const PackedShape& down) const {
  const size_t row = static_cast<size_t>(down.k) * dtype_bytes(kernels::row_dtype(down.format));
  return static_cast<size_t>(first_row_.back()) * row;
}

// The threads share one list: the panels of all experts, one expert after the other, in units. A
// thread's first unit is chosen by cost, not by number, because an expert's cost grows with its
// rows and an expert without rows costs nothing. From there the pool balances what remains.
template <typename Body>
void MlpRunner::for_panels(const Compute& compute, std::span<const ExpertWork> work, Panels panels,
                           int unit, Body&& body) {
  // Reading a panel from memory costs about as much as multiplying 12 rows with it.
  constexpr int64_t kReading = 12;
  const auto cost = [&](size_t i) {
    return work[i].x.num_rows == 0 ? 0 : kReading + work[i].x.num_rows;
  };
  const int64_t units = (panels.count() + unit - 1) / unit;  // per expert
  const auto count = static_cast<int64_t>(work.size()) * units;
  int64_t all = 0;
  for (size_t i = 0; i < work.size(); ++i) all += cost(i) * units;
  const base::ThreadPool& pool = compute.pool();
  const int threads = pool.num_threads();
  thread_starts_.clear();
  int64_t before = 0;  // cost of all experts before i
  for (size_t i = 0; i < work.size(); ++i) {
    const int64_t until = before + cost(i) * units;
    for (auto thread = static_cast<int64_t>(thread_starts_.size()); thread < threads; ++thread) {
      const auto from = static_cast<int64_t>(static_cast<double>(all) *
                                             pool.range_begin(static_cast<int>(thread)));
      if (from >= until) break;
      thread_starts_.push_back(static_cast<int64_t>(i) * units + (from - before) / cost(i));
    }
    before = until;
  }
  const auto next_with_rows = [&](size_t i) {
    do ++i;
    while (i < work.size() && work[i].x.num_rows == 0);
    return i < work.size() ? &work[i].mlp : nullptr;
  };
  const auto run = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t expert = begin / units, first = begin % units;
      const int64_t last = std::min(units, first + end - begin);
      if (work[expert].x.num_rows > 0) {
        const auto i = static_cast<size_t>(expert);
        body(i,
             Panels{panels.first + static_cast<int>(first) * unit,
                    std::min(panels.first + static_cast<int>(last) * unit, panels.last)},
             last == units ? next_with_rows(i) : nullptr);
      }
      begin += last - first;
    }
  };
  compute.pool().parallel_for_ranges(count, 1, run, thread_starts_);
}

void MlpRunner::gate_and_up(const Compute& compute, std::span<const ExpertWork> work, Panels panels,
                            std::byte* between) {
  if (!work[0].mlp.activation.has_gate()) return only_up(compute, work, panels, between);
  const PackedShape& down = work[0].mlp.down.shape;
  const Dtype dtype = kernels::row_dtype(down.format);
  const size_t row_bytes = static_cast<size_t>(down.k) * dtype_bytes(dtype);
  for_panels(
      compute, work, panels, panels_at_once(work[0].mlp.gate.shape, max_rows(work), 2),
      [&](size_t i, Panels run, const weights::GatedMlp* next) {
        const ExpertWork& expert = work[i];
        compute.kernels().gated_matmul(
            {.m = expert.x.num_rows,
             .x = inputs_[i].input,
             .gate = expert.mlp.gate,
             .up = expert.mlp.up,
             .first_panel = run.first,
             .last_panel = run.last,
             .h = {between + static_cast<size_t>(first_row_[i]) * row_bytes, row_bytes, dtype},
             .next_gate = next != nullptr ? next->gate.panel(panels.first) : nullptr,
             .next_up = next != nullptr ? next->up.panel(panels.first) : nullptr,
             .gate_bias = expert.mlp.gate_bias,
             .up_bias = expert.mlp.up_bias,
             .activation = expert.mlp.activation});
      });
}

// The product is rounded to the dtype of intermediate rows, as transformers does, and squared while
// its columns are in the thread's cache.
void MlpRunner::only_up(const Compute& compute, std::span<const ExpertWork> work, Panels panels,
                        std::byte* between) {
  const PackedShape& down = work[0].mlp.down.shape;
  const Dtype dtype = kernels::row_dtype(down.format);
  const size_t element = dtype_bytes(dtype), row_bytes = static_cast<size_t>(down.k) * element;
  for_panels(
      compute, work, panels, panels_at_once(work[0].mlp.up.shape, max_rows(work), 1),
      [&](size_t i, Panels run, const weights::GatedMlp* next) {
        const ExpertWork& expert = work[i];
        std::byte* rows = between + static_cast<size_t>(first_row_[i]) * row_bytes;
        compute.kernels().matmul({.m = expert.x.num_rows,
                                  .x = inputs_[i].input,
                                  .w = expert.mlp.up,
                                  .first_panel = run.first,
                                  .last_panel = run.last,
                                  .y = {rows, row_bytes, dtype},
                                  .next = next != nullptr ? next->up.panel(panels.first) : nullptr,
                                  .bias = expert.mlp.up_bias});
        const int begin = run.first * kernels::kPanelWidth;
        const int end = std::min(run.last * kernels::kPanelWidth, down.k);
        for (int row = 0; row < expert.x.num_rows; ++row) {
          std::byte* columns =
              rows + static_cast<size_t>(row) * row_bytes + static_cast<size_t>(begin) * element;
          compute.kernels().square_relu(dtype, end - begin, columns);
        }
      });
}

// Casts the intermediate rows to operands of down.
void MlpRunner::cast_between(const Compute& compute, std::span<const ExpertWork> work,
                             const std::byte* between) {
  const PackedShape& down = work[0].mlp.down.shape;
  const Dtype dtype = kernels::row_dtype(down.format);
  const size_t row_bytes = static_cast<size_t>(down.k) * dtype_bytes(dtype);
  const int num_rows = static_cast<int>(first_row_.back());
  const Rows rows =
      compute.cast(down, {{between, row_bytes}, num_rows, down.k, dtype}, between_cast_);
  for (size_t i = 0; i < work.size(); ++i) {
    inputs_[i] = rows;
    inputs_[i].input.first = rows.input[static_cast<int>(first_row_[i])];
  }
}

void MlpRunner::down(const Compute& compute, std::span<const ExpertWork> work, Panels panels) {
  for_panels(compute, work, panels, panels_at_once(work[0].mlp.down.shape, max_rows(work), 1),
             [&](size_t i, Panels run, const weights::GatedMlp* next) {
               const ExpertWork& expert = work[i];
               compute.kernels().matmul(
                   {.m = expert.x.num_rows,
                    .x = inputs_[i].input,
                    .w = expert.mlp.down,
                    .first_panel = run.first,
                    .last_panel = run.last,
                    .y = expert.result,
                    .next = next != nullptr ? next->down.panel(panels.first) : nullptr,
                    .bias = expert.mlp.down_bias});
             });
}

}  // namespace wideep::model
