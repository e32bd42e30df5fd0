// SPDX-License-Identifier: Apache-2.0
//
// For tests: writes small models with random weights as Hugging Face directories. The tokenizer's
// tokens are the 256 bytes.
#pragma once

#include <string>

#include "model/config.h"

namespace wideep::tests {

struct RandomModelShape {
  model::Architecture architecture = model::Architecture::kDeepseekV3;
  int num_experts = 16;
  int top_k = 4;
  int num_layers = 3;  // DeepSeek: the first is dense
  uint32_t seed = 1;
  int expert_width = 48;  // moe_intermediate_size
};

// Writes config.json, model.safetensors and tokenizer.json into `directory`, which exists.
// Weights are scaled so that routing varies from token to token and logits are of order 1.
void write_random_model(const std::string& directory, const RandomModelShape& shape);

}  // namespace wideep::tests
