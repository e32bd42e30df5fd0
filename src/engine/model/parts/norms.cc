// SPDX-License-Identifier: Apache-2.0
#include "model/parts/norms.h"

#include "base/try.h"

namespace wideep::model {

void StreamNorm::row(const kernels::Kernels& kernels, const float* x, float* y) const {
  const auto size = static_cast<int>(weight.size());
  if (subtracts_mean) {
    return kernels.layer_norm(x, {weight.data(), bias_of(bias), eps}, size, y);
  }
  kernels.rms_norm(x, weight.data(), eps, size, y);
}

void StreamNorm::rows(const Compute& compute, const float* x, int num_rows, float* y) const {
  if (!subtracts_mean) return compute.rms_norm(x, num_rows, weight, eps, y);
  constexpr int64_t kRowsPerChunk = 16;
  const auto width = static_cast<int64_t>(weight.size());
  compute.pool().parallel_for_ranges(num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) row(compute.kernels(), x + at * width, y + at * width);
  });
}

Result<StreamNorm> load_stream_norm(const ModelConfig& config, const weights::WeightLoader& loader,
                                    const std::string& module) {
  StreamNorm norm{
      .weight = {}, .bias = {}, .eps = config.rms_norm_eps, .subtracts_mean = config.layer_norms};
  WIDEEP_TRY_ASSIGN(norm.weight, load_norm(config, loader, module + ".weight", config.hidden_size));
  WIDEEP_TRY_ASSIGN(norm.bias,
                    load_bias(config.norm_bias, loader, module + ".bias", config.hidden_size));
  return norm;
}

Result<std::vector<float>> load_norm(const ModelConfig& config, const weights::WeightLoader& loader,
                                     const std::string& name, int64_t size) {
  WIDEEP_TRY_ASSIGN(std::vector<float> norm, loader.floats(name, {size}));
  if (config.norms_add_one) {
    for (float& weight : norm) weight += 1.0f;
  }
  return norm;
}

Result<std::vector<float>> load_bias(bool has_bias, const weights::WeightLoader& loader,
                                     const std::string& name, int64_t size) {
  if (!has_bias) return std::vector<float>();
  return loader.floats(name, {size});
}

}  // namespace wideep::model
