// SPDX-License-Identifier: Apache-2.0
//
// Chooses the experts of a token and their weights from the router's logits. Methods as in
// TensorRT-LLM's fused_moe/routing.py; the formulas are in router.cc.
//
// The selected experts are in descending order of the selection score; of equal scores the lower
// expert id comes first. All sums are float32, in a fixed order, so that bits never depend on the
// batch.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>

#include "model/config/config.h"

namespace wideep::model {

// logits, bias: [num_experts] (bias: of methods that correct the selection, DeepSeekV3, DeepSeekV4,
// MiniMax2 and Ernie; the others ignore it; null: none).
// experts, weights: [top_k].
void select_experts(const RoutingConfig& config, const float* logits, const float* bias,
                    int32_t* experts, float* weights);

// The weights of given experts, [top_k]. REQUIRES: the method is DeepSeekV4.
void weigh_experts(const RoutingConfig& config, const float* logits, const int32_t* experts,
                   float* weights);

}  // namespace wideep::model
