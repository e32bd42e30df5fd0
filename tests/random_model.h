// SPDX-License-Identifier: Apache-2.0
//
// For tests: writes small models with random weights as Hugging Face directories. The tokenizer's
// tokens are the 256 bytes and an end token, which is never the likeliest.
#pragma once

#include <string>

namespace wideep::tests {

struct RandomModelShape {
  std::string family = "deepseek_v3";  // or "qwen3_moe"
  int num_experts = 16;
  int top_k = 4;
  int num_layers = 3;  // DeepSeek: the first is dense
  uint32_t seed = 1;
  int expert_width = 48;   // moe_intermediate_size
  int num_predicting = 0;  // DeepSeek: layers for multi-token prediction
};

// Writes config.json, model.safetensors and tokenizer.json into `directory`, which exists.
// Weights are scaled so that routing varies from token to token and logits are of order 1.
void write_random_model(const std::string& directory, const RandomModelShape& shape);

// The same with the config.json of a golden model (tests/golden/family_models), but for vocabulary,
// end token, stored format and the width of experts.
void write_random_model_like(const std::string& directory, const std::string& golden,
                             uint32_t seed = 1);

}  // namespace wideep::tests
