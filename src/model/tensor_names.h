// SPDX-License-Identifier: Apache-2.0
//
// Checks that a checkpoint contains no tensors that its configuration excludes: layers beyond
// num_hidden_layers, experts beyond n_routed_experts, shared experts, biases. Loading would
// otherwise ignore them silently and compute a different model.
//
// Thread safety: pure function.
#pragma once

#include <span>
#include <string>

#include "model/config.h"

namespace wideep::model {

// names: of all tensors. where: the begin of error messages. Layers of multi-token prediction, and
// tensors outside layers, are accepted.
// Errors (invalid input): the first such tensor, what the configuration has instead, what to do.
Status check_tensor_names(const ModelConfig& config, std::span<const std::string> names,
                          const std::string& where);

}  // namespace wideep::model
