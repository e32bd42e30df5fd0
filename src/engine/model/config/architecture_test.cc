// SPDX-License-Identifier: Apache-2.0
#include "model/config/architecture.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
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
            "experts, of which wideep serves Llama, Mistral, Qwen2 and Qwen3");
  EXPECT_EQ(refusal({{"architectures", {"DbrxForCausalLM"}}, {"moe_num_experts", 16}}),
            "config.json: architectures: DbrxForCausalLM is not supported: wideep does not know "
            "how it computes; docs/models.md says which families it does");
  EXPECT_THAT(refusal({{"architectures", {"SomeOther"}}, {"model_type", "deepseek_v4"}}),
              HasSubstr("deepseek_v4: it needs compressed attention"));
  EXPECT_THAT(refusal(json::object()), HasSubstr("architectures: missing; expected a class name"));
}

}  // namespace
}  // namespace wideep::model
