// SPDX-License-Identifier: Apache-2.0
//
// Marks of the busy processor time divide an iteration into layers and a tail. What lies between
// two marks and is not the experts' is the layer's other time. So the experts', other and tail
// times add up to all that the rank was busy with, except for the reporting itself.
//
// A layer of the model is reported at once. A prediction layer may be passed several times in an
// iteration: its passes are added up (hold) and reported when another layer comes, or at the end,
// because a reader expects one record for each layer.
#include "engine/iteration_recorder.h"

#include <algorithm>
#include <utility>

#include "base/cpu_time.h"

namespace wideep::engine {
namespace {

void add(std::span<const int32_t> values, std::span<int32_t> sums) {
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

}  // namespace

void IterationRecorder::begin(int64_t iteration, std::span<Sequence* const> owners,
                              std::span<const int32_t> positions) {
  record_ = {.iteration = iteration};
  owners_ = owners;
  positions_ = positions;
  experts_rows_ = 0;
  start_ns_ = base::wall_ns();
  last_mark_cpu_ns_ = busy_cpu_ns();
}

void IterationRecorder::on_layer(const model::MoeLayerRecord& layer) {
  count(layer);
  // Each rank of a tensor group reports its own part of the batch's tokens.
  const ep::TokenRange own = model_.group().tokens(static_cast<int>(owners_.size()));
  ChosenExperts chosen{.layer = layer.layer,
                       .iteration = record_.iteration,
                       .experts = layer.experts,
                       .counts = layer.counts,
                       .group_counts = layer.group_counts,
                       .owners = owners_.subspan(own.begin, own.size),
                       .positions = {}};
  if (layer.layer < first_prediction_layer_) {
    chosen.positions = positions_.subspan(own.begin, own.size);
    reporter_.chosen(chosen);
  } else {
    hold(chosen);
  }
  last_mark_cpu_ns_ = busy_cpu_ns();  // reporting is not part of the next layer
}

void IterationRecorder::count(const model::MoeLayerRecord& layer) {
  if (layer.layer != held_.layer) {
    LayerRecord& added = record_.layers.emplace_back();
    added.sent.resize(static_cast<size_t>(stage_.num_ranks()));
    added.counts.resize(layer.counts.size());
    added.slot_counts.resize(layer.slot_counts.size());
  }
  LayerRecord& record = record_.layers.back();
  record.experts_cpu_ns += layer.experts_cpu_ns;
  record.shared_cpu_ns += layer.shared_cpu_ns;
  record.exchange_cpu_ns += layer.exchange_cpu_ns;
  experts_rows_ += layer.experts_rows;
  record.other_cpu_ns += busy_cpu_ns() - last_mark_cpu_ns_ - layer.experts_cpu_ns;
  add(layer.sent_entries, std::span(record.sent).subspan(dispatch_ranks_.begin));
  add(layer.counts, record.counts);
  add(layer.slot_counts, record.slot_counts);
  const int index = static_cast<int>(record_.layers.size()) - 1;
  if (online_ != nullptr) online_->add_counts(index, layer.group_counts);
  if (speculation_ != nullptr && speculation_->is_adaptive()) {
    speculation_->add_counts(index, layer.group_counts);
  }
}

// Rows of no sequence are counted, but nothing is said about their experts.
void IterationRecorder::hold(const ChosenExperts& chosen) {
  if (chosen.layer != held_.layer) {
    report_held();
    held_ = {.layer = chosen.layer};
    held_.counts.resize(chosen.counts.size());
    held_.group_counts.resize(chosen.counts.size());
  }
  add(chosen.counts, held_.counts);
  add(chosen.group_counts, held_.group_counts);
  const size_t top_k = chosen.owners.empty() ? 0 : chosen.experts.size() / chosen.owners.size();
  for (size_t row = 0; row < chosen.owners.size(); ++row) {
    if (chosen.owners[row] == nullptr) continue;
    held_.owners.push_back(chosen.owners[row]);
    const auto experts = chosen.experts.subspan(row * top_k, top_k);
    held_.experts.insert(held_.experts.end(), experts.begin(), experts.end());
  }
}

void IterationRecorder::report_held() {
  if (held_.layer < 0) return;
  reporter_.chosen({.layer = held_.layer,
                    .iteration = record_.iteration,
                    .experts = held_.experts,
                    .counts = held_.counts,
                    .group_counts = held_.group_counts,
                    .owners = held_.owners,
                    .positions = {}});
  held_.layer = -1;
}

IterationRecord& IterationRecorder::end() {
  report_held();
  record_.tail_cpu_ns = busy_cpu_ns() - last_mark_cpu_ns_;
  record_.end_ns = base::wall_ns();
  record_.wall_ns = record_.end_ns - start_ns_;
  return record_;
}

int64_t IterationRecorder::experts_cpu_ns() const {
  int64_t sum = 0;
  for (const LayerRecord& layer : record_.layers) sum += layer.experts_cpu_ns;
  return sum;
}

// Processor time on this rank's critical path. Waits for other ranks burn processor time too and
// are subtracted; lag_cpu_ns() adds what the busiest pool thread needed beyond this one.
int64_t IterationRecorder::busy_cpu_ns() const {
  return base::thread_cpu_ns() - stage_.waited_cpu_ns() + compute_.pool().lag_cpu_ns();
}

}  // namespace wideep::engine
