// SPDX-License-Identifier: Apache-2.0
//
// What a model costs in memory: sums of what its parts say (parts/part_cost.h).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "ep/buffer_layout.h"
#include "model/model_forms.h"
#include "parallel/mapping.h"

namespace wideep::model {

// Bytes of the weights of these layers without routed experts, packed; with the embedding on the
// first stage and those that predict, and the LM head on the last.
uint64_t dense_weight_bytes(const ModelConfig& config, const ModelForms& forms,
                            parallel::LayerRange layers);

// Bytes of a token's intermediate results. Layers run one at a time and share each buffer, so its
// size is that of the largest layer. A test compares the sum with what a forward pass allocates.
// sharing: the ranks that share sequences; for a token of its own, a rank has one of each of them
// where layers keep states.
uint64_t working_row_bytes(const ModelConfig& config, const ModelForms& forms,
                           const ep::DispatchShape& shape, parallel::LayerRange layers,
                           int sharing = 1);

}  // namespace wideep::model
