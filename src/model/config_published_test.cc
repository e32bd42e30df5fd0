// SPDX-License-Identifier: Apache-2.0
//
// The config.json files of published models, looked for in $WIDEEP_DATA_DIR/model_configs.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "model/config.h"
#include "model/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;

class PublishedConfig : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("WIDEEP_DATA_DIR");
    if (data == nullptr ||
        !std::filesystem::is_directory(dir_ = data + std::string("/model_configs"))) {
      GTEST_SKIP() << "WIDEEP_DATA_DIR/model_configs is not there";
    }
  }

  json published(const std::string& model) const {
    return read_json(dir_ + "/" + model + "_config.json");
  }

  std::string dir_;
};

TEST_F(PublishedConfig, DeepseekV3) {
  const Result<ModelConfig> parsed = parse(published("deepseek-ai--DeepSeek-V3"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(parsed->notes, testing::IsEmpty());
  EXPECT_EQ(parsed->stored_format, kernels::WeightFormat::kFp8);
  EXPECT_EQ(parsed->hidden_size, 7168);
  EXPECT_EQ(parsed->num_layers, 61);
  EXPECT_EQ(parsed->num_moe_layers(), 58);
  EXPECT_EQ(parsed->num_mtp_layers, 1);
  EXPECT_EQ(parsed->routing.num_experts, 256);
  EXPECT_EQ(parsed->routing.top_k, 8);
  EXPECT_EQ(parsed->routing.num_groups, 8);
  EXPECT_EQ(parsed->routing.top_k_groups, 4);
  EXPECT_EQ(parsed->rope.factor, 40);
  EXPECT_TRUE(parsed->rope.interleaved);
  EXPECT_DOUBLE_EQ(parsed->rope.softmax_scale_multiplier, 1.8738542070926265);
}

TEST_F(PublishedConfig, Qwen3) {
  const Result<ModelConfig> small = parse(published("Qwen--Qwen3-30B-A3B"));
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_THAT(small->notes, testing::IsEmpty());
  EXPECT_EQ(small->num_moe_layers(), 48);
  EXPECT_EQ(small->num_kv_heads, 4);
  EXPECT_EQ(small->head_dim, 128);
  EXPECT_EQ(small->routing.method, RoutingMethod::kRenormalize);
  EXPECT_EQ(small->rope.theta, 1e6);

  const Result<ModelConfig> large = parse(published("Qwen--Qwen3-235B-A22B"));
  ASSERT_TRUE(large.ok()) << large.status().message();
  EXPECT_EQ(large->num_moe_layers(), 94);
  EXPECT_EQ(large->num_heads, 64);

  const Result<ModelConfig> coder = parse(published("Qwen--Qwen3-Coder-480B-A35B-Instruct"));
  ASSERT_TRUE(coder.ok()) << coder.status().message();
  EXPECT_EQ(coder->routing.num_experts, 160);
}

// The class is DeepSeek's, and so is the arithmetic.
TEST_F(PublishedConfig, KimiK2) {
  const Result<ModelConfig> parsed = parse(published("moonshotai--Kimi-K2-Instruct"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->routing.num_experts, 384);
  EXPECT_EQ(parsed->routing.num_groups, 1);
}

TEST_F(PublishedConfig, OtherArchitecturesAreRefusedByName) {
  for (const char* model :
       {"MiniMaxAI--MiniMax-M2.5", "Qwen--Qwen3.5-35B-A3B", "deepseek-ai--DeepSeek-V3.2",
        "deepseek-ai--DeepSeek-V4-Flash", "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        "mistralai--Mixtral-8x7B-v0.1", "moonshotai--Kimi-K2.5", "openai--gpt-oss-120b",
        "zai-org--GLM-5"}) {
    const json config = published(model);
    EXPECT_EQ(complaint(config),
              "config.json: architectures: " + config["architectures"][0].get<std::string>() +
                  " is not supported; supported: DeepseekV3ForCausalLM, "
                  "Qwen3MoeForCausalLM");
  }
}

}  // namespace
}  // namespace wideep::model
