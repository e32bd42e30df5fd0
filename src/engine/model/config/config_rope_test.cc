// SPDX-License-Identifier: Apache-2.0
//
// The expected numbers of YaRN were computed by transformers 5.23.0 from the same files.
#include <gmock/gmock.h>

#include "model/config/config.h"
#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Scaling = RopeConfig::Scaling;

RopeConfig rope_of(const json& config) {
  Result<ModelConfig> parsed = parse(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed->rope : RopeConfig{};
}

// The scaling of the published DeepSeek-V3, on a small model.
json deepseek_v3_scaling() {
  json config = classic_json("deepseek_yarn");
  config["max_position_embeddings"] = 163840;
  config["rope_theta"] = 10000;
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 40},
                            {"beta_fast", 32},
                            {"beta_slow", 1},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0},
                            {"original_max_position_embeddings", 4096}};
  return config;
}

TEST(RopeConfig, None) {
  const RopeConfig deepseek = rope_of(golden_json("deepseek_plain"));
  EXPECT_EQ(deepseek.scaling, Scaling::kNone);
  EXPECT_EQ(deepseek.theta, 10000);
  EXPECT_EQ(deepseek.attention_factor, 1.0);
  EXPECT_EQ(deepseek.softmax_scale_multiplier, 1.0);
  EXPECT_TRUE(deepseek.interleaved);
  EXPECT_FALSE(rope_of(golden_json("qwen3_gqa")).interleaved);
  EXPECT_FALSE(rope_of(golden_json("deepseek_odd")).interleaved);
}

TEST(RopeConfig, Linear) {
  const RopeConfig rope = rope_of(golden_json("qwen3_mqa"));
  EXPECT_EQ(rope.scaling, Scaling::kLinear);
  EXPECT_EQ(rope.factor, 2.0);
  EXPECT_EQ(rope.attention_factor, 1.0);
}

// As transformers: "or" takes the default for null and 0, a null factor is the ratio of contexts.
TEST(RopeConfig, YarnDefaultsOfNullAndZero) {
  const RopeConfig expected = rope_of(deepseek_v3_scaling());
  for (const char* key : {"factor", "beta_fast", "beta_slow"}) {
    json config = deepseek_v3_scaling();
    config["rope_scaling"][key] = nullptr;
    EXPECT_EQ(rope_of(config), expected) << key;
  }
  for (const char* key : {"beta_fast", "beta_slow"}) {
    json config = deepseek_v3_scaling();
    config["rope_scaling"][key] = 0;
    EXPECT_EQ(rope_of(config), expected) << key;
  }
  json config = deepseek_v3_scaling();
  config["rope_scaling"]["finetuned"] = true;
  EXPECT_EQ(rope_of(config), expected);
  config["rope_scaling"]["factor"] = nullptr;
  config["max_position_embeddings"] = 2048;
  EXPECT_EQ(complaint(config),
            "config.json: rope_scaling.factor: null means max_position_embeddings / "
            "original_max_position_embeddings, which is 0.5; expected at least 1");
  config["rope_scaling"].erase("factor");
  EXPECT_THAT(complaint(config), HasSubstr("factor: missing; expected a number from 1"));
}

TEST(RopeConfig, YarnOfTheGoldenModels) {
  const RopeConfig even = rope_of(golden_json("deepseek_yarn"));
  EXPECT_EQ(even.scaling, Scaling::kYarn);
  EXPECT_EQ(even.theta, 1000);
  EXPECT_EQ(even.factor, 4);
  EXPECT_EQ(even.original_max_position_embeddings, 24);
  EXPECT_TRUE(even.truncate);
  EXPECT_DOUBLE_EQ(even.attention_factor, 1.0);
  EXPECT_DOUBLE_EQ(even.softmax_scale_multiplier, 1.2964769927807063);

  const RopeConfig odd = rope_of(golden_json("deepseek_odd"));
  EXPECT_DOUBLE_EQ(odd.attention_factor, 1.0388929752217428);
  EXPECT_NEAR(odd.softmax_scale_multiplier, 1.143433966251171, 1e-15);
  EXPECT_EQ(odd.beta_fast, 32);
  EXPECT_EQ(odd.beta_slow, 1);

  const RopeConfig qwen3 = rope_of(golden_json("qwen3_yarn"));
  EXPECT_DOUBLE_EQ(qwen3.attention_factor, 1.138629436111989);
  EXPECT_EQ(qwen3.softmax_scale_multiplier, 1.0);
  EXPECT_FALSE(qwen3.truncate);
}

TEST(RopeConfig, YarnScalesOfDeepseek) {
  const auto check = [](const char* key, const json& value, double attention, double softmax) {
    json config = deepseek_v3_scaling();
    config["rope_scaling"][key] = value;
    const RopeConfig rope = rope_of(config);
    EXPECT_DOUBLE_EQ(rope.attention_factor, attention) << key;
    EXPECT_DOUBLE_EQ(rope.softmax_scale_multiplier, softmax) << key;
  };
  check("factor", 40, 1.0, 1.8738542070926265);
  check("factor", 1.0, 1.0, 1.0);
  check("mscale", nullptr, 1.3688879454113936, 1.8738542070926265);
  check("mscale", 0.707, 0.9210423553163399, 1.8738542070926265);
  check("mscale_all_dim", nullptr, 1.3688879454113936, 1.0);
  check("attention_factor", 1.5, 1.5, 1.8738542070926265);
}

TEST(RopeConfig, BothSpellingsAreTheSame) {
  for (const char* model :
       {"deepseek_plain", "deepseek_yarn", "deepseek_odd", "qwen3_mqa", "qwen3_yarn"}) {
    const json both = golden_json(model);
    json newer = both;
    newer.erase("rope_theta");
    newer.erase("rope_scaling");
    EXPECT_EQ(rope_of(newer), rope_of(both)) << model;
    EXPECT_EQ(rope_of(classic_json(model)), rope_of(both)) << model;
  }
}

TEST(RopeConfig, SpellingsThatContradictAreRefused) {
  json config = golden_json("deepseek_yarn");
  config["rope_scaling"]["factor"] = 8.0;
  EXPECT_EQ(complaint(config),
            "config.json: rope_scaling: contradicts rope_parameters; give one of them");
  config = golden_json("deepseek_yarn");
  config["rope_theta"] = 5000;
  EXPECT_EQ(complaint(config),
            "config.json: rope_parameters.rope_theta: found 1000 and, elsewhere in the file, 5000; "
            "give one");
}

// YaRN is usually switched on beside max_position_embeddings as it was trained.
TEST(RopeConfig, ScaledContextsAreUsable) {
  const auto positions = [](const json& rope, int trained, const char* spelling) {
    json config = classic_json("qwen3_gqa");
    config["max_position_embeddings"] = trained;
    config[spelling] = rope;
    const auto parsed = parse(config);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? parsed->max_position_embeddings : 0;
  };
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  json older = yarn;
  older.erase("rope_type");
  older["type"] = "yarn";
  EXPECT_EQ(positions(yarn, 40960, "rope_scaling"), 131072);
  EXPECT_EQ(positions(older, 40960, "rope_scaling"), 131072);
  EXPECT_EQ(positions(yarn, 32768, "rope_scaling"), 131072);
  EXPECT_EQ(positions(yarn, 131072, "rope_scaling"), 131072);
  EXPECT_EQ(positions(yarn, 163840, "rope_scaling"), 163840);
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(positions(llama3, 8192, "rope_scaling"), 65536);
  EXPECT_EQ(positions(llama3, 131072, "rope_scaling"), 131072);
  // Without the trained number of positions there is nothing to multiply.
  EXPECT_EQ(positions({{"rope_type", "yarn"}, {"factor", 4.0}}, 40960, "rope_scaling"), 40960);
  EXPECT_EQ(positions({{"rope_type", "linear"}, {"factor", 4.0}}, 4096, "rope_scaling"), 4096);
}

TEST(RopeConfig, OriginalPositionsOutsideTheScalingComeFirst) {
  json config = deepseek_v3_scaling();
  config["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(rope_of(config).original_max_position_embeddings, 8192);
  config.erase("original_max_position_embeddings");
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(rope_of(config).original_max_position_embeddings, 163840);
}

TEST(RopeConfig, RefusesByName) {
  const auto refused = [](const char* key, const json& value) {
    json config = deepseek_v3_scaling();
    if (key == std::string("rope_type")) config["rope_scaling"].erase("type");
    config["rope_scaling"][key] = value;
    const std::string message = complaint(config);
    const std::string prefix = std::string("config.json: rope_scaling.") + key + ": ";
    EXPECT_THAT(message, testing::StartsWith(prefix));
    return message.substr(std::min(message.size(), prefix.size()));
  };
  for (const char* type : {"dynamic", "longrope", "su"}) {
    EXPECT_EQ(refused("type", type),
              std::string(type) + " is not supported; supported: default, linear, llama3, yarn");
    EXPECT_EQ(refused("rope_type", type),
              std::string(type) + " is not supported; supported: default, linear, llama3, yarn");
  }
  EXPECT_EQ(refused("factor", 0.5), "expected a number from 1 to 1000000, found 0.5");
  EXPECT_EQ(refused("beta_fast", 0.5), "expected at least beta_slow 1, found 0.5");
  EXPECT_THAT(refused("beta_fats", 32), HasSubstr("did you mean 'beta_fast'?"));
  EXPECT_THAT(refused("full_attention", json::object()), HasSubstr("not a key of"));
}

TEST(RopeConfig, ScalingWithoutAKindIsRefused) {
  json config = deepseek_v3_scaling();
  config["rope_scaling"].erase("type");
  EXPECT_THAT(parse(config).status().message(),
              HasSubstr("expected rope_type linear, llama3 or yarn"));
  config["rope_scaling"]["type"] = "default";
  EXPECT_THAT(parse(config).status().message(),
              HasSubstr("expected rope_type linear, llama3 or yarn"));
  config["rope_scaling"] = {{"type", "default"}, {"rope_theta", 10000}};
  EXPECT_EQ(rope_of(config).scaling, Scaling::kNone);
}

// The parameters of Llama 4 Scout.
// Divisors that do not depend on the length of a text.
TEST(RopeConfig, LongropeWithTheSameDivisors) {
  json config = classic_json("qwen3_gqa");
  const json divisors = {1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 8.0};
  config["rope_scaling"] = {{"rope_type", "longrope"},
                            {"short_factor", divisors},
                            {"long_factor", divisors},
                            {"attention_factor", 1.25},
                            {"original_max_position_embeddings", 64}};
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->rope.divisors, divisors.get<std::vector<float>>());
  EXPECT_EQ(parsed->rope.attention_factor, 1.25);
  // transformers' default: sqrt(1 + ln(factor) / ln(original)).
  config["rope_scaling"].erase("attention_factor");
  config["rope_scaling"]["factor"] = 4.0;
  EXPECT_NEAR(parse(config)->rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)),
              1e-12);
  config["rope_scaling"]["long_factor"][2] = 2.25;
  EXPECT_THAT(complaint(config), HasSubstr("rope_scaling.long_factor: expected the numbers of "
                                           "short_factor; wideep computes no frequencies that"));
  for (const char* key : {"short_factor", "long_factor"}) {
    config["rope_scaling"][key] = {1.0, 2.0};
  }
  EXPECT_THAT(complaint(config),
              HasSubstr("short_factor, long_factor: expected lists of 8 positive numbers, one "
                        "for each pair of rotated dimensions, found 2"));
  config["rope_scaling"]["short_factor"] = json::array();
  EXPECT_THAT(complaint(config),
              HasSubstr("rope_scaling.short_factor: expected a list of positive numbers"));
}

// Of a kind of layers that rotates a part of a head, which the same object says.
TEST(RopeConfig, LongropeOfAPartOfAHead) {
  json config = small_json("laguna");
  const json divisors = {1.0, 1.5};
  config["rope_parameters"] = {{"full_attention",
                                {{"rope_type", "longrope"},
                                 {"rope_theta", 1e4},
                                 {"partial_rotary_factor", 0.5},
                                 {"short_factor", divisors},
                                 {"long_factor", divisors},
                                 {"original_max_position_embeddings", 64}}}};
  config["head_dim"] = 8;
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->grouped_query.rotary_dim, 4);
  EXPECT_EQ(parsed->rope.divisors, divisors.get<std::vector<float>>());
  json& full = config["rope_parameters"]["full_attention"];
  full["short_factor"] = full["long_factor"] = {1.0, 1.5, 2.0, 2.5};
  EXPECT_THAT(complaint(config),
              HasSubstr("long_factor: expected lists of 2 positive numbers, one for each pair of "
                        "rotated dimensions, found 4"));
}

TEST(RopeConfig, Llama3) {
  json config = small_json("llama4_text");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 16.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 1.0},
                            {"original_max_position_embeddings", 8192}};
  const RopeConfig rope = rope_of(config);
  EXPECT_EQ(rope.scaling, Scaling::kLlama3);
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.factor, 16.0);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 1.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 8192);
  EXPECT_TRUE(rope.interleaved);
  config["rope_scaling"]["low_freq_factor"] = 2.0;
  EXPECT_EQ(complaint(config),
            "config.json: rope_scaling.high_freq_factor: expected at least low_freq_factor 2, "
            "found 1");
  config["rope_scaling"].erase("low_freq_factor");
  EXPECT_THAT(complaint(config), HasSubstr("rope_scaling.low_freq_factor: missing"));
}

TEST(RopeConfig, ThetaIsRequiredAndSane) {
  json config = classic_json("qwen3_gqa");
  config["rope_theta"] = 1.0;
  EXPECT_EQ(complaint(config),
            "config.json: rope_theta: expected a number from 2 to 1000000000000, found 1.0");
  config.erase("rope_theta");
  EXPECT_THAT(complaint(config), HasSubstr("config.json: rope_theta: missing"));
}

}  // namespace
}  // namespace wideep::model
