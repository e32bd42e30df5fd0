// SPDX-License-Identifier: Apache-2.0
//
// Which experts a token goes to, and with what weights, from the router's logits. Methods as in
// TensorRT-LLM's fused_moe/routing.py; formulas in router.cc beside their code.
//
// Selected experts stand in descending order of the selection score; equal scores go to the lower
// expert id. All arithmetic is float32 in ascending order of expert ids, one token at a time.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace wideep::model {

// logits, bias: [num_experts] (bias only for DeepSeek's method, else null).
// experts, weights: [top_k].
void select_experts(const RoutingConfig& config, const float* logits, const float* bias,
                    int32_t* experts, float* weights);

}  // namespace wideep::model
