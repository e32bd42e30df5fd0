// SPDX-License-Identifier: Apache-2.0
//
// The names of the tensors that a model is loaded from, as Hugging Face's checkpoints have them.
//
// Thread safety: pure function.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "weights/tensor_source.h"

namespace wideep::model {

struct ModelTensors {
  std::set<std::string, std::less<>> used;  // with the codes and scales of quantised matrices
  std::vector<std::string> missing;         // in the order of loading
};

// Uses names and dtypes of the source only.
ModelTensors model_tensors(const ModelConfig& config, const weights::TensorSource& tensors);

}  // namespace wideep::model
