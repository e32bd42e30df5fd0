// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints that transformers has written must match without a note. Then tensors are added or
// taken away: what the configuration leaves out is refused, what changes nothing is named, and one
// that is only missing is left to loading. Which of embedding and LM head a tied model uses is held
// case by case, as transformers decides it. A failure loads another model than the files hold.
#include "model/match_tensors.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/config/config_testing.h"
#include "model/tensor_list.h"
#include "weights/checkpoint.h"

namespace wideep::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Names, dtypes and bytes of tensors, which the tests choose.
class Names : public weights::TensorSource {
 public:
  void add(const std::string& name, Dtype dtype = Dtype::kBf16, const char* bytes = "") {
    entries_[name] = {dtype, {1}, std::as_bytes(std::span(bytes, std::strlen(bytes)))};
  }
  void remove(const std::string& name) { ASSERT_EQ(entries_.erase(name), 1u) << name; }

  std::vector<std::string> all() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>&) const override {
    return invalid_input(name + ": has no bytes");
  }
  const tensor_files::TensorEntry* find(const std::string& name) const override {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, tensor_files::TensorEntry> entries_;
};

ModelConfig small_config() {
  ModelConfig config;
  config.num_layers = 3;
  config.num_mtp_layers = 1;
  config.routing = {.method = RoutingMethod::kDeepseekV3, .num_experts = 8, .selection_bias = true};
  config.layers.resize(3);
  config.layers[0].is_moe = false;
  return config;
}

Names tensors_of(const ModelConfig& config) {
  Names tensors;
  for (const ListedTensor& tensor : all_tensors(config)) tensors.add(tensor.name);
  return tensors;
}

Status match(const Names& tensors, ModelConfig* config) {
  return match_tensors(tensors, tensors.all(), "dir", config);
}

std::string error_with(const std::string& name, Dtype dtype = Dtype::kBf16) {
  ModelConfig config = small_config();
  Names tensors = tensors_of(config);
  tensors.add(name, dtype);
  const Status status = match(tensors, &config);
  EXPECT_TRUE(status.ok() || status.exit_code() == 2);
  return status.message();
}

// The golden checkpoints were written by transformers: their tensors are what a model has.
TEST(MatchTensors, CheckpointsOfTransformersMatch) {
  for (const char* model : {"deepseek_plain", "deepseek_groups", "deepseek_odd", "deepseek_yarn",
                            "qwen3_gqa", "qwen3_mqa", "qwen3_yarn"}) {
    SCOPED_TRACE(model);
    auto config = read_model_config(golden_dir(model));
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto checkpoint = weights::Checkpoint::open(golden_dir(model));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const Status status = match_tensors(*checkpoint, checkpoint->names(), model, &*config);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(config->notes, IsEmpty());
  }
}

TEST(MatchTensors, WhatTheConfigurationLeavesOutIsRefused) {
  EXPECT_THAT(error_with("model.layers.4.input_layernorm.weight"), HasSubstr("which has 3 layers"));
  EXPECT_THAT(error_with("model.layers.2.mlp.experts.8.up_proj.weight"), HasSubstr("8 experts"));
  EXPECT_THAT(error_with("model.layers.2.mlp.shared_experts.up_proj.weight"),
              HasSubstr("dir: model.layers.2.mlp.shared_experts.up_proj.weight: a tensor that "
                        "config.json leaves out, which has no shared experts"));
  EXPECT_THAT(error_with("model.layers.0.self_attn.q_proj.bias"), HasSubstr("no biases"));
}

TEST(MatchTensors, WhatIsNotUsedIsNamed) {
  ModelConfig config = small_config();
  Names tensors = tensors_of(config);
  for (const char* unused :
       {"model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.3.embed_tokens.weight", "model.layers.3.enorm.weight", "vision.a", "vision.b",
        "vision.c"}) {
    tensors.add(unused);
  }
  ASSERT_TRUE(match(tensors, &config).ok());
  EXPECT_THAT(config.notes,
              ElementsAre("dir: 2 tensors of 1 layer that predict further tokens are not run",
                          "dir: not used: model.layers.0.self_attn.k_scale, vision.a, vision.b and "
                          "1 more"));
}

TEST(MatchTensors, ScaleBesideAMatrixWithoutScalesIsRefused) {
  for (const char* part : {"weight_scale_inv", "weight_scale", "weight_scale_2",
                           "weight_zero_point", "scales", "weight_g_idx"}) {
    EXPECT_THAT(error_with(std::string("model.layers.1.mlp.experts.3.up_proj.") + part),
                AllOf(HasSubstr(part), HasSubstr("beside model.layers.1.mlp.experts.3.up_proj."
                                                 "weight of dtype BF16, which has no such part")));
  }
  EXPECT_THAT(error_with("lm_head.weight_scale"), HasSubstr("beside lm_head.weight"));
  // The same matrix as floats and as codes.
  EXPECT_THAT(error_with("lm_head.weight_packed", Dtype::kI32),
              HasSubstr("lm_head.weight: beside lm_head.weight_packed of dtype I32"));
  EXPECT_THAT(error_with("lm_head.qweight", Dtype::kI32),
              HasSubstr("lm_head.qweight: beside lm_head.weight of dtype BF16"));
}

TEST(MatchTensors, ScalesOfQuantisedMatricesAreUsed) {
  ModelConfig config = small_config();
  Names tensors = tensors_of(config);
  tensors.remove("lm_head.weight");
  tensors.add("lm_head.weight_packed", Dtype::kI32);
  tensors.add("lm_head.weight_scale");
  tensors.add("lm_head.weight_shape", Dtype::kI64);
  tensors.add("model.layers.0.mlp.up_proj.weight", Dtype::kF8E4M3);
  tensors.add("model.layers.0.mlp.up_proj.weight_scale_inv", Dtype::kF32);
  tensors.add("model.layers.0.mlp.down_proj.weight", Dtype::kU8);
  tensors.add("model.layers.0.mlp.down_proj.weight_scale", Dtype::kF8E4M3);
  tensors.add("model.layers.0.mlp.down_proj.weight_scale_2", Dtype::kF32);
  const Status status = match(tensors, &config);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(config.notes, IsEmpty());
  // Fp8 with the scale of another layout as well.
  tensors.add("model.layers.0.mlp.up_proj.weight_scale", Dtype::kF32);
  EXPECT_THAT(match(tensors, &config).message(), HasSubstr("of dtype F8_E4M3, which has no such"));
}

TEST(MatchTensors, AllExpertsInOneTensorAreFound) {
  ModelConfig config = small_config();
  Names fused;
  for (const ListedTensor& tensor : all_tensors(config)) {
    if (tensor.use != TensorUse::kExpert) fused.add(tensor.name);
  }
  for (const int layer : {1, 2}) {
    const std::string experts = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    fused.add(experts + "gate_up_proj");
    fused.add(experts + "down_proj");
  }
  const Status status = match(fused, &config);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(MatchTensors, OtherLayoutsAreNamedAsSuch) {
  ModelConfig config = small_config();
  Names mixtral;
  for (const ListedTensor& tensor : all_tensors(config))
    mixtral.add("language_model." + tensor.name);
  EXPECT_THAT(
      match(mixtral, &config).message(),
      AllOf(HasSubstr("have names that wideep does not know (language_model.lm_head.weight"),
            HasSubstr("missing, such as model.embed_tokens.weight")));
  // A single wrong name is left to loading, which suggests the right one.
  Names misspelt = tensors_of(config);
  misspelt.remove("model.norm.weight");
  misspelt.add("model.nrom.weight");
  EXPECT_TRUE(match(misspelt, &config).ok());
}

struct Tied {
  const char* embedding;  // bytes; nullptr: not in the files
  const char* head;
  const char* embedding_tensor;
  const char* head_tensor;
  const char* note;  // the end of the line; nullptr: none
};

TEST(MatchTensors, TiedHeadIsChosenAsTransformersDoes) {
  constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";
  const Tied cases[] = {
      {"ab", nullptr, kEmbedding, kEmbedding, nullptr},
      {"ab", "ab", kEmbedding, kEmbedding, nullptr},
      {"ab", "ac", kEmbedding, kHead, "because it differs from model.embed_tokens.weight"},
      {"ab", "abc", kEmbedding, kHead, "because it differs from model.embed_tokens.weight"},
      {nullptr, "ab", kHead, kHead, "which the files do not have (tie_word_embeddings)"},
  };
  for (const Tied& tied : cases) {
    ModelConfig config = small_config();
    config.tie_word_embeddings = true;
    Names tensors = tensors_of(config);
    tensors.remove(kEmbedding);
    if (tied.embedding != nullptr) tensors.add(kEmbedding, Dtype::kBf16, tied.embedding);
    if (tied.head != nullptr) tensors.add(kHead, Dtype::kBf16, tied.head);
    ASSERT_TRUE(match(tensors, &config).ok());
    EXPECT_EQ(config.embedding_tensor, tied.embedding_tensor);
    EXPECT_EQ(config.head_tensor(), tied.head_tensor);
    ASSERT_EQ(config.notes.size(), tied.note == nullptr ? 0u : 1u);
    if (tied.note != nullptr) {
      EXPECT_THAT(config.notes[0], testing::EndsWith(tied.note));
    }
  }
}

}  // namespace
}  // namespace wideep::model
