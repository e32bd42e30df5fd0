// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_names.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace wideep::model {
namespace {

using testing::HasSubstr;

TEST(TensorNames, WhatTheConfigurationLeavesOutIsRefused) {
  ModelConfig config;
  config.num_layers = 3;
  config.num_mtp_layers = 1;
  config.routing.num_experts = 8;
  const auto check = [&](const std::string& name) {
    const std::vector<std::string> names = {"model.embed_tokens.weight", name};
    return check_tensor_names(config, names, "dir").message();
  };
  for (const char* known :
       {"lm_head.weight", "model.layers.2.mlp.experts.7.up_proj.weight",
        "model.layers.3.mlp.shared_experts.up_proj.weight", "model.layers.3.embed_tokens.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias", "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq", "vision.layers.9.q_proj.bias"}) {
    EXPECT_EQ(check(known), "") << known;
  }
  EXPECT_THAT(check("model.layers.4.input_layernorm.weight"), HasSubstr("which has 3 layers"));
  EXPECT_THAT(check("model.layers.2.mlp.experts.8.up_proj.weight"), HasSubstr("8 experts"));
  EXPECT_THAT(check("model.layers.2.mlp.shared_experts.up_proj.weight"),
              HasSubstr("dir: model.layers.2.mlp.shared_experts.up_proj.weight: a tensor that "
                        "config.json leaves out, which has no shared experts"));
  EXPECT_THAT(check("model.layers.0.self_attn.q_proj.bias"), HasSubstr("no biases"));
  config.num_shared_experts = 1;
  EXPECT_EQ(check("model.layers.2.mlp.shared_experts.up_proj.weight"), "");
}

}  // namespace
}  // namespace wideep::model
