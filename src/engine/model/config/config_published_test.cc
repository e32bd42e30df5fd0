// SPDX-License-Identifier: Apache-2.0
//
// The config.json files of published models, looked for in $WIDEEP_DATA_DIR/model_configs.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "model/config/config.h"
#include "model/config/config_testing.h"
#include "model/config/nearest_family.h"

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

  // The config, which must be read without notes.
  ModelConfig read(const std::string& model) const {
    const Result<ModelConfig> parsed = parse(published(model));
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    if (!parsed.ok()) return {};
    EXPECT_THAT(parsed->notes, testing::IsEmpty());
    return *parsed;
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

TEST_F(PublishedConfig, DeepseekR1IsDeepseekV3) {
  const ModelConfig config = read("deepseek-ai--DeepSeek-R1");
  EXPECT_EQ(config.family, "deepseek_v3");
  EXPECT_EQ(config.num_layers, 61);
  EXPECT_EQ(config.routing.num_experts, 256);
}

TEST_F(PublishedConfig, DeepseekV32) {
  const ModelConfig config = read("deepseek-ai--DeepSeek-V3.2");
  EXPECT_EQ(config.family, "deepseek_v32");
  EXPECT_EQ(config.stored_format, kernels::WeightFormat::kFp8);
  EXPECT_EQ(config.num_moe_layers(), 58);
  EXPECT_EQ(config.num_mtp_layers, 1);
  EXPECT_EQ(config.indexer.num_heads, 64);
  EXPECT_EQ(config.indexer.head_dim, 128);
  EXPECT_EQ(config.indexer.top_k, 2048);
  EXPECT_FALSE(config.indexer.rotates_interleaved);
  EXPECT_TRUE(config.rope.interleaved);
  EXPECT_DOUBLE_EQ(config.rope.softmax_scale_multiplier, 1.8738542070926265);
  EXPECT_EQ(config.routing.num_groups, 8);
}

TEST_F(PublishedConfig, Glm5) {
  const ModelConfig config = read("zai-org--GLM-5");
  EXPECT_EQ(config.family, "glm_moe_dsa");
  EXPECT_EQ(config.num_layers, 78);
  EXPECT_EQ(config.num_moe_layers(), 75);
  EXPECT_EQ(config.hidden_size, 6144);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.v_head_dim, 256);
  EXPECT_EQ(config.q_lora_rank, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.latent_norm_eps, 1e-6f);
  EXPECT_EQ(config.indexer.num_heads, 32);
  EXPECT_TRUE(config.indexer.rotates_interleaved);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(config.routing.scaling_factor, 2.5f);
  EXPECT_THAT(config.eos_token_ids, testing::ElementsAre(154820, 154827, 154829));
  for (const LayerConfig& layer : config.layers) EXPECT_FALSE(layer.shares_index);
}

TEST_F(PublishedConfig, GptOss) {
  const ModelConfig config = read("openai--gpt-oss-20b");
  EXPECT_EQ(config.family, "gpt_oss");
  EXPECT_EQ(config.stored_format, kernels::WeightFormat::kMxfp4);
  EXPECT_EQ(config.hidden_size, 2880);
  EXPECT_EQ(config.moe_intermediate_size, 2880);
  EXPECT_EQ(config.num_heads, 64);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.routing.num_experts, 32);
  EXPECT_EQ(config.routing.top_k, 4);
  EXPECT_TRUE(config.routing.logit_bias);
  EXPECT_TRUE(config.expert_bias);
  EXPECT_EQ(config.activation.kind, kernels::Activation::Kind::kClampedSwiglu);
  EXPECT_EQ(config.activation.alpha, 1.702f);
  EXPECT_EQ(config.activation.limit, 7.0f);
  EXPECT_TRUE(config.grouped_query.sinks);
  EXPECT_TRUE(config.grouped_query.output_bias);
  EXPECT_EQ(config.layers[0].window, 128);
  EXPECT_EQ(config.layers[1].window, 0);
  EXPECT_EQ(config.rope.theta, 150000);
  EXPECT_FALSE(config.rope.truncate);
  EXPECT_DOUBLE_EQ(config.rope.attention_factor, 1.3465735902799727);

  const ModelConfig large = read("openai--gpt-oss-120b");
  EXPECT_EQ(large.num_layers, 36);
  EXPECT_EQ(large.routing.num_experts, 128);
}

TEST_F(PublishedConfig, MiniMaxM25) {
  const ModelConfig config = read("MiniMaxAI--MiniMax-M2.5");
  EXPECT_EQ(config.family, "minimax_m2");
  EXPECT_EQ(config.stored_format, kernels::WeightFormat::kFp8);
  EXPECT_EQ(config.num_layers, 62);
  EXPECT_EQ(config.num_moe_layers(), 62);
  EXPECT_EQ(config.moe_intermediate_size, 1536);
  EXPECT_EQ(config.num_mtp_layers, 3);
  EXPECT_EQ(config.shared_intermediate_size, 0);
  EXPECT_EQ(config.grouped_query.norm, GroupedQueryConfig::Norm::kAllHeads);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.grouped_query.rotary_dim, 64);
  EXPECT_EQ(config.rope.theta, 5e6);
  EXPECT_EQ(config.routing.method, RoutingMethod::kMinimax2);
  EXPECT_EQ(config.routing.num_experts, 256);
}

TEST_F(PublishedConfig, Mixtral) {
  const ModelConfig small = read("mistralai--Mixtral-8x7B-v0.1");
  EXPECT_EQ(small.family, "mixtral");
  EXPECT_EQ(small.head_dim, 128);
  EXPECT_EQ(small.moe_intermediate_size, 14336);
  EXPECT_EQ(small.routing.num_experts, 8);
  EXPECT_EQ(small.routing.top_k, 2);
  EXPECT_EQ(small.layers[0].window, 0);
  EXPECT_EQ(small.rope.theta, 1e6);
  const ModelConfig large = read("mistralai--Mixtral-8x22B-v0.1");
  EXPECT_EQ(large.num_layers, 56);
  EXPECT_EQ(large.hidden_size, 6144);
}

TEST_F(PublishedConfig, Llama4) {
  const ModelConfig scout = read("meta-llama--Llama-4-Scout-17B-16E-Instruct");
  EXPECT_EQ(scout.family, "llama4");
  EXPECT_EQ(scout.num_moe_layers(), 48);
  EXPECT_EQ(scout.routing.num_experts, 16);
  EXPECT_EQ(scout.routing.method, RoutingMethod::kLlama4);
  EXPECT_TRUE(scout.weight_on_input);
  EXPECT_EQ(scout.moe_intermediate_size, 8192);
  EXPECT_EQ(scout.shared_intermediate_size, 8192);
  EXPECT_EQ(scout.dense_intermediate_size, 16384);
  EXPECT_EQ(scout.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(scout.rope.factor, 16.0);
  EXPECT_TRUE(scout.rope.interleaved);
  EXPECT_EQ(scout.layers[0].chunk, 8192);
  EXPECT_EQ(scout.layers[3].chunk, 0);
  EXPECT_FALSE(scout.layers[3].rotates);
  EXPECT_EQ(scout.grouped_query.norm, GroupedQueryConfig::Norm::kHead);
  EXPECT_FALSE(scout.grouped_query.norm_has_weight);
  EXPECT_TRUE(scout.grouped_query.norm_rotated_only);
  EXPECT_EQ(scout.grouped_query.temperature, 0.1f);

  const ModelConfig maverick = read("meta-llama--Llama-4-Maverick-17B-128E-Instruct");
  EXPECT_EQ(maverick.num_moe_layers(), 24);
  EXPECT_FALSE(maverick.layers[0].is_moe);
  EXPECT_EQ(maverick.routing.num_experts, 128);
  EXPECT_EQ(maverick.grouped_query.norm, GroupedQueryConfig::Norm::kNone);
  EXPECT_EQ(maverick.rope.scaling, RopeConfig::Scaling::kNone);
}

TEST_F(PublishedConfig, Qwen35) {
  const ModelConfig small = read("Qwen--Qwen3.5-35B-A3B");
  EXPECT_EQ(small.family, "qwen3_5_moe");
  EXPECT_EQ(small.num_layers, 40);
  EXPECT_EQ(small.layers[0].mixer, LayerConfig::Mixer::kDeltaNet);
  EXPECT_EQ(small.layers[3].mixer, LayerConfig::Mixer::kAttention);
  EXPECT_EQ(small.num_kv_heads, 2);
  EXPECT_EQ(small.head_dim, 256);
  EXPECT_EQ(small.grouped_query.rotary_dim, 64);
  EXPECT_TRUE(small.grouped_query.output_gate);
  EXPECT_TRUE(small.norms_add_one);
  EXPECT_EQ(small.delta_net.num_key_heads, 16);
  EXPECT_EQ(small.delta_net.num_value_heads, 32);
  EXPECT_EQ(small.delta_net.convolution_width, 4);
  EXPECT_FALSE(small.delta_net.fused_projections);
  EXPECT_EQ(small.rope.theta, 1e7);
  EXPECT_EQ(small.routing.num_experts, 256);
  EXPECT_EQ(small.routing.method, RoutingMethod::kRenormalize);
  EXPECT_EQ(small.shared_intermediate_size, 512);
  EXPECT_TRUE(small.shared_expert_gate);
  EXPECT_FALSE(small.tie_word_embeddings);
  EXPECT_THAT(small.eos_token_ids, testing::ElementsAre(248044));

  const ModelConfig large = read("Qwen--Qwen3.5-397B-A17B");
  EXPECT_EQ(large.num_layers, 60);
  EXPECT_EQ(large.hidden_size, 4096);
  EXPECT_EQ(large.routing.num_experts, 512);
  EXPECT_EQ(large.routing.top_k, 10);
}

TEST_F(PublishedConfig, Qwen3) {
  const ModelConfig small = read("Qwen--Qwen3-30B-A3B");
  EXPECT_EQ(small.num_moe_layers(), 48);
  EXPECT_EQ(small.num_kv_heads, 4);
  EXPECT_EQ(small.head_dim, 128);
  EXPECT_EQ(small.routing.method, RoutingMethod::kRenormalize);
  EXPECT_EQ(small.rope.theta, 1e6);

  const ModelConfig large = read("Qwen--Qwen3-235B-A22B");
  EXPECT_EQ(large.num_moe_layers(), 94);
  EXPECT_EQ(large.num_heads, 64);

  const ModelConfig coder = read("Qwen--Qwen3-Coder-480B-A35B-Instruct");
  EXPECT_EQ(coder.routing.num_experts, 160);
}

// The class is DeepSeek's, and so is the arithmetic.
TEST_F(PublishedConfig, KimiK2) {
  const ModelConfig config = read("moonshotai--Kimi-K2-Instruct");
  EXPECT_EQ(config.routing.num_experts, 384);
  EXPECT_EQ(config.routing.num_groups, 1);
  EXPECT_EQ(config.rope.beta_fast, 1.0);
  EXPECT_EQ(config.num_mtp_layers, 0);
}

TEST_F(PublishedConfig, KimiK25) {
  const ModelConfig config = read("moonshotai--Kimi-K2.5");
  EXPECT_EQ(config.family, "kimi_k25");
  EXPECT_EQ(config.stored_format, kernels::WeightFormat::kInt4);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.rope.factor, 64.0);
  EXPECT_EQ(config.routing.num_experts, 384);
  EXPECT_FALSE(config.tie_word_embeddings);
}

// Under names that nobody knows, the published files resemble their own families, or one that reads
// the same keys.
TEST_F(PublishedConfig, AllResembleAFamily) {
  for (const auto& file : std::filesystem::directory_iterator(dir_)) {
    json config = read_json(file.path().string());
    config.update({{"architectures", {"ChattyForCausalLM"}}, {"model_type", "chatty"}});
    const auto document = formats::JsonDocument::parse(config.dump(), "config.json");
    ASSERT_TRUE(document.ok());
    const auto nearest = nearest_family(document->root(), true);
    ASSERT_TRUE(nearest) << file.path();
    EXPECT_THAT(nearest->unread, testing::IsEmpty()) << file.path();
  }
}

TEST_F(PublishedConfig, DeepseekV4) {
  const ModelConfig config = read("deepseek-ai--DeepSeek-V4-Flash");
  EXPECT_TRUE(config.is_compressed());
  EXPECT_EQ(config.hyper.num_streams, 4);
  EXPECT_EQ(config.grouped_query.rotary_dim, 64);
  EXPECT_EQ(config.attention_of(0).group_size, 0);
  EXPECT_EQ(config.attention_of(2).group_size, 4);
  EXPECT_EQ(config.attention_of(3).group_size, 128);
  EXPECT_EQ(config.attention_of(3).rope.attention_factor, 1.0);
  EXPECT_EQ(config.routing.num_experts, 256);
  EXPECT_EQ(config.num_mtp_layers, 1);
}

}  // namespace
}  // namespace wideep::model
