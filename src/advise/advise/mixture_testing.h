// SPDX-License-Identifier: Apache-2.0
//
// For tests: a mixture of experts of middling size, top 4.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config.h"

namespace wideep::advise {

inline model::ModelConfig mixture_of(int num_layers, int num_experts) {
  const auto config = model::parse_model_config(fmt::format(R"({{
    "model_type": "qwen3_moe", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": {},
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 4096, "moe_intermediate_size": 1024, "num_experts": {},
    "num_experts_per_tok": 4, "norm_topk_prob": true, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "decoder_sparse_step": 1, "mlp_only_layers": []}})",
                                                            num_layers, num_experts),
                                                "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

}  // namespace wideep::advise
