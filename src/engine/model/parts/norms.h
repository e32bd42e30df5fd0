// SPDX-License-Identifier: Apache-2.0
//
// Loads the weights of norms.
//
// Thread safety: as WeightLoader.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "weights/weight_loader.h"

namespace wideep::model {

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
