// SPDX-License-Identifier: Apache-2.0
#include "model/parts/norms.h"

#include "base/try.h"

namespace wideep::model {

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
