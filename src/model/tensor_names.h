// SPDX-License-Identifier: Apache-2.0
//
// Does a checkpoint hold what its configuration leaves out? Tensors that nobody asks for would
// otherwise be missing without a word: layers beyond num_hidden_layers, experts beyond
// n_routed_experts, shared experts, biases.
#pragma once

#include <span>
#include <string>

#include "model/config.h"

namespace wideep::model {

// names: of all tensors; where: what messages begin with. Layers of multi-token prediction are
// known, and so is all that is not of a layer.
// Errors (invalid input): the first such tensor, what the configuration says, and what to do.
Status check_tensor_names(const ModelConfig& config, std::span<const std::string> names,
                          const std::string& where);

}  // namespace wideep::model
