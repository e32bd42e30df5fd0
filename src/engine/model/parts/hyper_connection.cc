// SPDX-License-Identifier: Apache-2.0
//
// One product makes all weights of a token. The norm before it has no weight of its own, so that
// its factor multiplies the few results instead of the many inputs.
#include "model/parts/hyper_connection.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {
namespace {

constexpr int64_t kRowsPerTask = 4;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// rsqrt(mean(x²) + epsilon), summed in lanes that do not depend on the instruction set.
float inverse_size(const float* x, int count, float epsilon) {
  constexpr int kLanes = 16;
  std::array<float, kLanes> sums = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += x[i + lane] * x[i + lane];
    }
  }
  float sum = 0.0f;
  for (const float lane : sums) sum += lane;
  for (; i < count; ++i) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / static_cast<float>(count) + epsilon);
}

// Each row divided by its sum, or each column.
void normalize(float* matrix, int n, bool rows, float epsilon) {
  const int step = rows ? 1 : n, first = rows ? n : 1;
  for (int i = 0; i < n; ++i) {
    float sum = epsilon;
    for (int j = 0; j < n; ++j) sum += matrix[i * first + j * step];
    for (int j = 0; j < n; ++j) matrix[i * first + j * step] /= sum;
  }
}

}  // namespace

Result<HyperWeights> HyperWeights::load(const ModelConfig& config,
                                        const weights::WeightLoader& loader,
                                        const std::string& name) {
  const PartCost cost = hyper_cost(config, name);
  HyperWeights weights;
  const ListedTensor& mix = cost.tensors[0];
  WIDEEP_TRY_ASSIGN(weights.mix, loader.matrix(mix.name, static_cast<int>(mix.shape[0]),
                                               static_cast<int>(mix.shape[1]),
                                               weights::default_form(kernels::WeightFormat::kF32)));
  WIDEEP_TRY_ASSIGN(weights.base, loader.floats(cost.tensors[1].name, cost.tensors[1].shape));
  WIDEEP_TRY_ASSIGN(weights.scale, loader.floats(cost.tensors[2].name, cost.tensors[2].shape));
  return weights;
}

template <typename Run>
void HyperConnection::for_each_row(const Compute& compute, int rows, Run run) {
  compute.pool().parallel_for_ranges(rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) run(row);
  });
}

// [rows, outputs] products of the normalised streams.
const float* HyperConnection::weigh(const Compute& compute, const HyperWeights& weights,
                                    const float* x, int rows) {
  const int width = config_.stream_width(), outputs = weights.mix.packed.n();
  const auto count = static_cast<size_t>(outputs);
  float* mixed = mixed_.get<float>(static_cast<size_t>(rows) * count);
  const SourceRows source = float_rows(x, static_cast<size_t>(width), rows, width);
  compute.matmul(compute.cast(weights.mix.packed.shape, source, cast_), weights.mix.packed, mixed,
                 count);
  for_each_row(compute, rows, [&](size_t row) {
    const float factor =
        inverse_size(x + row * static_cast<size_t>(width), width, config_.rms_norm_eps);
    for (size_t i = 0; i < count; ++i) mixed[row * count + i] *= factor;
  });
  return mixed;
}

void HyperConnection::sum_streams(const float* pre, const float* x, float* out) const {
  const int hidden = config_.hidden_size, streams = config_.hyper.num_streams;
  for (int i = 0; i < hidden; ++i) out[i] = pre[0] * x[i];
  for (int s = 1; s < streams; ++s) {
    const float* from = x + static_cast<size_t>(s) * static_cast<size_t>(hidden);
    for (int i = 0; i < hidden; ++i) out[i] += pre[s] * from[i];
  }
}

void HyperConnection::mix_streams(const HyperWeights& weights, const float* mixed, float* post,
                                  float* comb) const {
  const HyperConfig& hyper = config_.hyper;
  const auto n = static_cast<size_t>(hyper.num_streams);
  const float* base = weights.base.data();
  for (size_t s = 0; s < n; ++s) {
    post[s] = 2.0f * sigmoid(mixed[n + s] * weights.scale[1] + base[n + s]);
  }
  for (size_t s = 0; s < n; ++s) {
    float* row = comb + s * n;
    const size_t first = 2 * n + s * n;
    for (size_t t = 0; t < n; ++t) {
      row[t] = mixed[first + t] * weights.scale[2] + base[first + t];
    }
    const float largest = *std::max_element(row, row + n);
    float sum = 0.0f;
    for (size_t t = 0; t < n; ++t) sum += row[t] = std::exp(row[t] - largest);
    for (size_t t = 0; t < n; ++t) row[t] = row[t] / sum + hyper.epsilon;
  }
  normalize(comb, hyper.num_streams, false, hyper.epsilon);
  for (int i = 1; i < hyper.iterations; ++i) {
    normalize(comb, hyper.num_streams, true, hyper.epsilon);
    normalize(comb, hyper.num_streams, false, hyper.epsilon);
  }
}

const float* HyperConnection::collapse(const Compute& compute, const HyperWeights& weights,
                                       const float* x, int rows) {
  const auto n = static_cast<size_t>(config_.hyper.num_streams);
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const float* mixed = weights.empty() ? nullptr : weigh(compute, weights, x, rows);
  const size_t outputs = weights.empty() ? 0 : weights.base.size();
  float* collapsed = collapsed_.get<float>(static_cast<size_t>(rows) * hidden);
  float* pre = pre_.get<float>(static_cast<size_t>(rows) * n);
  for_each_row(compute, rows, [&](size_t row) {
    for (size_t s = 0; s < n; ++s) {
      pre[row * n + s] =
          mixed == nullptr
              ? 1.0f / static_cast<float>(n)
              : sigmoid(mixed[row * outputs + s] * weights.scale[0] + weights.base[s]) +
                    config_.hyper.epsilon;
    }
    sum_streams(pre + row * n, x + row * n * hidden, collapsed + row * hidden);
  });
  return collapsed;
}

const float* HyperConnection::enter(const Compute& compute, const HyperWeights& weights,
                                    const float* x, int rows) {
  const auto n = static_cast<size_t>(config_.hyper.num_streams);
  const float* collapsed = collapse(compute, weights, x, rows);
  const size_t outputs = weights.base.size();
  const float* mixed = mixed_.get<float>(static_cast<size_t>(rows) * outputs);
  post_.resize(static_cast<size_t>(rows) * n);
  comb_.resize(static_cast<size_t>(rows) * n * n);
  for_each_row(compute, rows, [&](size_t row) {
    mix_streams(weights, mixed + row * outputs, post_.data() + row * n, comb_.data() + row * n * n);
  });
  return collapsed;
}

void HyperConnection::leave(const Compute& compute, const float* y, int rows, float* x) const {
  const auto n = static_cast<size_t>(config_.hyper.num_streams);
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  for_each_row(compute, rows, [&](size_t row) {
    thread_local std::vector<float> before;
    float* streams = x + row * n * hidden;
    before.assign(streams, streams + n * hidden);
    const float* comb = comb_.data() + row * n * n;
    for (size_t s = 0; s < n; ++s) {
      const float post = post_[row * n + s];
      float* to = streams + s * hidden;
      const float* part = y + row * hidden;
      for (size_t i = 0; i < hidden; ++i) to[i] = post * part[i];
      for (size_t t = 0; t < n; ++t) {
        const float share = comb[t * n + s];
        const float* from = before.data() + t * hidden;
        for (size_t i = 0; i < hidden; ++i) to[i] += share * from[i];
      }
    }
  });
}

}  // namespace wideep::model
