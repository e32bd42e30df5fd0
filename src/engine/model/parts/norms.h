// SPDX-License-Identifier: Apache-2.0
//
// Norms of the residual stream, and the weights of other norms.
//
// Thread safety: loading as WeightLoader; a StreamNorm is constant.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/parts/compute.h"
#include "weights/weight_loader.h"

namespace wideep::model {

// An RMS norm or a layer norm, as the config says. Each row is computed alone, by one kernel, so
// that its bits do not depend on the rows beside it.
struct StreamNorm {
  std::vector<float> weight;  // [size]; empty: there is no norm
  std::vector<float> bias;    // [size], or empty: none
  float eps = 0.0f;
  bool subtracts_mean = false;  // a layer norm

  bool empty() const { return weight.empty(); }
  // y = norm(x), [size] each, which may be the same memory.
  void row(const kernels::Kernels& kernels, const float* x, float* y) const;
  // The same for [num_rows, size], on all threads.
  void rows(const Compute& compute, const float* x, int num_rows, float* y) const;
  bool operator==(const StreamNorm&) const = default;
};

// The norm of the residual stream that is called so, as "model.norm".
// Errors: as WeightLoader::floats.
Result<StreamNorm> load_stream_norm(const ModelConfig& config, const weights::WeightLoader& loader,
                                    const std::string& module);

// The factors of an RMS norm, [size]: the tensor, or 1 + the tensor where the config says so.
// Errors: as WeightLoader::floats.
Result<std::vector<float>> load_norm(const ModelConfig& config, const weights::WeightLoader& loader,
                                     const std::string& name, int64_t size);

// Biases, or nothing where the model has none.
Result<std::vector<float>> load_bias(bool has_bias, const weights::WeightLoader& loader,
                                     const std::string& name, int64_t size);
// Null if there are none.
inline const float* bias_of(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

}  // namespace wideep::model
