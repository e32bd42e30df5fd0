// SPDX-License-Identifier: Apache-2.0
#include "model/config/architecture.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"
#include "model/config/nearest_family.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json small(const std::string& family, const json& more) {
  json config = small_json(family);
  config.update(more);
  return config;
}

// Absent keys mean what they mean in the configuration class of the model_type.
TEST(Architecture, ModelTypesOfOtherClassesAreRefused) {
  for (const char* type : {"sarvam_moe", "qwen3_moe", "glm4", "GLM4_MOE"}) {
    const json config =
        small("glm4_moe", {{"architectures", {"Glm4MoeForCausalLM"}}, {"model_type", type}});
    EXPECT_EQ(complaint(config),
              std::string("config.json: model_type: expected glm4_moe, as architectures says, "
                          "found ") +
                  type + "; keys that the file does not have may mean something else there");
  }
  for (const char* type : {"deepseek_v3", "kimi_k2"}) {
    json config = golden_json("deepseek_plain");
    config["model_type"] = type;
    EXPECT_EQ(complaint(config), "");
  }
  json wrapped = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                  {"model_type", "qwen3_5_moe"},
                  {"text_config", small_json("qwen3_5_moe_text")}};
  EXPECT_EQ(complaint(wrapped), "");
  wrapped["text_config"]["model_type"] = "qwen3_6_moe_text";
  EXPECT_THAT(complaint(wrapped), HasSubstr("text_config.model_type: expected qwen3_5_moe, as"));
}

TEST(Architecture, AnEmptyListSaysNothing) {
  for (const json& list : {json::array(), json(nullptr)}) {
    EXPECT_EQ(complaint(small("mixtral", {{"architectures", list}})), "");
  }
  EXPECT_THAT(complaint(small("mixtral", {{"architectures", {1}}})),
              HasSubstr("architectures: expected a list that begins with a class name"));
}

// The nearest reason, in one line without all that is supported.
TEST(Architecture, UnsupportedOnesAreToldWhy) {
  const auto refusal = [](const json& config) { return complaint(config); };
  EXPECT_EQ(refusal({{"architectures", {"MixtralForCasualLM"}}, {"num_local_experts", 8}}),
            "config.json: architectures: MixtralForCasualLM is not supported: did you mean "
            "MixtralForCausalLM?");
  EXPECT_EQ(refusal({{"model_type", "mixtrall"}, {"num_local_experts", 8}}),
            "config.json: model_type: mixtrall is not supported: did you mean mixtral?");
  EXPECT_EQ(refusal({{"architectures", {"Qwen3MoeForSequenceClassification"}},
                     {"model_type", "qwen3_moe"}}),
            "config.json: architectures: Qwen3MoeForSequenceClassification is not supported: of "
            "model_type qwen3_moe wideep computes Qwen3MoeForCausalLM");
  EXPECT_EQ(refusal({{"architectures", {"Gemma2ForCausalLM"}},
                     {"model_type", "gemma2"},
                     {"hidden_size", 4096}}),
            "config.json: architectures: Gemma2ForCausalLM is not supported: a model without "
            "experts, of which wideep serves Llama, Mistral, Qwen2 and Qwen3; "
            "docs/models.md#adding-a-family says how one is added");
  EXPECT_EQ(refusal({{"architectures", {"ChattyForCausalLM"}}, {"moe_num_experts", 16}}),
            "config.json: architectures: ChattyForCausalLM is not supported: wideep does not know "
            "how it computes; docs/models.md#adding-a-family says how one is added");
  EXPECT_THAT(refusal(json::object()), HasSubstr("architectures: missing; expected a class name"));
}

// By model_type, by class, and as the text of a wrapper.
TEST(Architecture, FamiliesThatAreKnownAndNotComputed) {
  const auto expect = [](const json& config, const std::string& reason) {
    EXPECT_THAT(complaint(config), HasSubstr(" is not supported: " + reason));
    EXPECT_EQ(complaint(config).find('\n'), std::string::npos);
  };
  expect({{"model_type", "kolibri1"}}, "it needs norms after attention and experts, and a choice");
  expect({{"architectures", {"DeepseekV41ForCausalLM"}}}, "transformers has no class for it");
  expect({{"architectures", {"SomeOther"}}, {"model_type", "kolibri1"}},
         "kolibri1: it needs norms after attention");
  expect({{"architectures", {"KimiK3ForConditionalGeneration"}}, {"model_type", "kimi_k3"}},
         "it needs attention to the outputs of earlier layers");
  expect({{"architectures", {"MistralLarge4ForConditionalGeneration"}}}, "it needs an indexer");
  expect({{"model_type", "mistral_large4_text"}}, "it needs an indexer, keys and values of other");
  expect({{"model_type", "jamba"}}, "it needs Mamba layers");
  expect({{"architectures", {"Grok1ForCausalLM"}}}, "transformers has no class for it");
  // Those that begin with the same letters are computed.
  EXPECT_EQ(complaint(small_json("mistral4")), "");
}

// A config.json of a family that nobody knows, with keys as published files have them.
json unknown(json config, const json& more) {
  config.update({{"architectures", {"ChattyMoeForCausalLM"}},
                 {"model_type", "chatty_moe"},
                 {"transformers_version", "5.30.0"},
                 {"attention_dropout", 0.0},
                 {"initializer_range", 0.02},
                 {"use_cache", true},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2}});
  config.update(more);
  return config;
}

TEST(Architecture, UnknownOnesAreToldWhatTheyResemble) {
  const std::string begin =
      "config.json: architectures: ChattyMoeForCausalLM is not supported: wideep does not know how "
      "it computes; its keys are most like those of ";
  const std::string end = "; docs/models.md#adding-a-family says how one is added";
  EXPECT_EQ(complaint(unknown(golden_json("qwen3_gqa"),
                              {{"expert_noise", 0.5}, {"attention_gate_rank", 16}})),
            begin + "qwen3_moe, which reads all but attention_gate_rank, expert_noise" + end);
  json groups = golden_json("deepseek_groups");
  groups.update({{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}});
  EXPECT_EQ(complaint(unknown(groups, {{"hc_gain", 4}, {"swiglu_bound", 10.0}})),
            begin + "deepseek_v3, which reads all but hc_gain, swiglu_bound" + end);
  EXPECT_EQ(complaint(unknown(groups, json::object())),
            begin + "deepseek_v3, which reads all of them" + end);
  EXPECT_EQ(complaint(unknown(small_json("qwen3_next"), {{"state_mixing", "full"}})),
            begin + "qwen3_next, which reads all but state_mixing" + end);
  json many = groups;
  for (int i = 0; i < 9; ++i) many["new_key_" + std::to_string(i)] = i;
  EXPECT_THAT(complaint(unknown(many, json::object())),
              HasSubstr("new_key_6, new_key_7 and 1 more; docs"));
  // Values that no family takes, a text model within, a dense one.
  EXPECT_THAT(complaint(unknown(groups, {{"n_group", "four"}, {"hidden_size", -3}})),
              HasSubstr(", which reads all of them; docs"));
  const json wrapped = {{"architectures", {"ChattyMoeForCausalLM"}},
                        {"text_config", unknown(groups, {{"hc_mult", 4}})}};
  EXPECT_EQ(complaint(wrapped), begin + "deepseek_v3, which reads all but hc_mult" + end);
  EXPECT_THAT(complaint(unknown(small_json("qwen3"), {{"soft_cap", 9.0}})),
              AllOf(HasSubstr("serves Llama, Mistral, Qwen2 and Qwen3; its keys are most like "),
                    HasSubstr(", which reads all but soft_cap; docs")));
  EXPECT_EQ(complaint(unknown(groups, {{"line\nbreak", 1}})).find('\n'), std::string::npos);
}

// Each family resembles itself, or one that reads the same keys.
TEST(Architecture, TheNearestFamilyReadsAllKeysOfAKnownOne) {
  for (const std::string& family : small_families()) {
    const auto document = formats::JsonDocument::parse(small_json(family).dump(), "config.json");
    ASSERT_TRUE(document.ok());
    const auto nearest = nearest_family(document->root(), parse(small_json(family))->has_experts());
    ASSERT_TRUE(nearest) << family;
    EXPECT_THAT(nearest->unread, testing::IsEmpty()) << family;
    EXPECT_TRUE(document->status().ok());
  }
}

}  // namespace
}  // namespace wideep::model
