// SPDX-License-Identifier: Apache-2.0
//
// Golden models under the names and keys that other programs write: the logits stay transformers'.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/scratch_directory.h"
#include "model/golden_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Tensors = std::vector<tensor_files::TensorToWrite>;

std::string golden(const std::string& model) {
  const std::string folder = WIDEEP_SOURCE_DIR "/tests/golden/";
  const bool first = model.starts_with("deepseek_odd") || model.starts_with("deepseek_plain");
  return folder + (first ? "models/" : "family_models/") + model;
}

// A copy of a golden model to be changed.
class Copy {
 public:
  explicit Copy(const std::string& model)
      : dir_(golden(model)),
        file_(std::make_shared<const tensor_files::SafetensorsFile>(
            tensor_files::SafetensorsFile::open(dir_ + "/model.safetensors").value())),
        config(json::parse(std::ifstream(dir_ + "/config.json"))) {
    for (const auto& [name, entry] : file_->tensors()) {
      tensors.push_back({name, entry.dtype, entry.shape, entry.bytes});
    }
  }

  // Replaces what the expression matches in every name.
  void rename(const char* from, const char* to) {
    for (auto& tensor : tensors)
      tensor.name = std::regex_replace(tensor.name, std::regex(from), to);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
  }

  // The largest difference of float32 logits, as a share of the largest; or the error.
  Result<double> difference() const {
    const base::ScratchDirectory scratch;
    std::ofstream(scratch.file("config.json")) << config;
    WIDEEP_TRY(tensor_files::write_safetensors(scratch.file("model.safetensors"), tensors));
    const auto answers = tensor_files::SafetensorsFile::open(dir_ + "/golden.safetensors").value();
    double worst = 0.0;
    for (int p = 0; answers.find(fmt::format("p{}.ids", p)) != nullptr; ++p) {
      const auto ids = values<int32_t>(answers, fmt::format("p{}.ids", p));
      WIDEEP_TRY_ASSIGN(const Output output,
                        run_model(scratch.path(), *kernels::select_kernels(nullptr).value(),
                                  {.format = WeightFormat::kF32}, ids));
      const auto expected = values<float>(answers, fmt::format("p{}.logits_f32", p));
      worst = std::max(worst,
                       largest_difference(output.logits, expected) / largest_magnitude(expected));
    }
    return worst;
  }

 private:
  std::string dir_;
  std::shared_ptr<const tensor_files::SafetensorsFile> file_;

 public:
  Tensors tensors;
  json config;
};

void expect_golden(const Copy& copy) {
  const auto difference = copy.difference();
  ASSERT_TRUE(difference.ok()) << difference.status().message();
  EXPECT_LE(*difference, 1e-4);
}

// Kimi-K2.5 as transformers 5.24 saves it.
TEST(Spellings, KimiK25OfTransformers) {
  for (const char* model : {"kimi_k25_plain", "kimi_k25_odd"}) {
    Copy copy(model);
    copy.config["architectures"] = {"Kimi_K25ForConditionalGeneration"};
    copy.config["tie_word_embeddings"] = false;
    copy.config["text_config"]["model_type"] = "deepseek_v3";
    Copy original = copy;
    copy.rename("^language_model\\.lm_head", "lm_head");
    copy.rename("^language_model\\.model", "model.language_model");
    copy.rename("^(vision_tower|mm_projector)", "model.$1");
    expect_golden(copy);
    // In what it takes for the original layout.
    original.rename("^language_model\\.model\\.layers", "language_model.model.blocks");
    expect_golden(original);
  }
}

// It writes queries without a latent under the name of another module, with rows that it has
// rearranged, and cannot read them back.
TEST(Spellings, QueriesThatTransformersHasRearrangedAreRefused) {
  Copy copy("kimi_k25_plain");
  copy.config["architectures"] = {"Kimi_K25ForConditionalGeneration"};
  copy.rename("layers", "blocks");
  copy.rename("self_attn\\.q_b_proj", "self_wqkv");
  EXPECT_THAT(copy.difference().status().message(),
              HasSubstr("self_wqkv.weight: queries whose rows transformers has rearranged; save "
                        "the model with save_original_format=False"));
}

// The names that programs that quantise give to experts.
TEST(Spellings, ExpertsEachOnItsOwn) {
  for (const char* model : {"mixtral_plain", "mixtral_odd", "minimax_m2_plain"}) {
    for (const char* stem : {"block_sparse_moe", "mlp"}) {
      Copy copy(model);
      copy.rename("experts\\.([0-9]+)\\.w1", "experts.$1.gate_proj");
      copy.rename("experts\\.([0-9]+)\\.w2", "experts.$1.down_proj");
      copy.rename("experts\\.([0-9]+)\\.w3", "experts.$1.up_proj");
      copy.rename("block_sparse_moe\\.experts", fmt::format("{}.experts", stem).c_str());
      expect_golden(copy);
    }
    Copy copy(model);
    copy.rename("block_sparse_moe\\.experts", "mlp.experts");
    expect_golden(copy);
  }
}

TEST(Spellings, FusedExpertsSplit) {
  for (const char* stem : {"block_sparse_moe", "mlp"}) {
    Copy copy("granitemoe_plain");
    Tensors split;
    for (const auto& tensor : copy.tensors) {
      const bool gate_up = tensor.name.ends_with("input_linear.weight");
      if (!gate_up && !tensor.name.ends_with("output_linear.weight")) {
        split.push_back(tensor);
        continue;
      }
      const std::string layer = tensor.name.substr(0, tensor.name.find("block_sparse_moe"));
      const int64_t parts = gate_up ? 2 : 1, rows = tensor.shape[1] / parts;
      const size_t bytes =
          tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]) / static_cast<size_t>(parts);
      const std::vector<const char*> names =
          gate_up ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"};
      for (size_t i = 0; i < static_cast<size_t>(tensor.shape[0] * parts); ++i) {
        split.push_back(
            {fmt::format("{}{}.experts.{}.{}.weight", layer, stem, i / static_cast<size_t>(parts),
                         names[i % static_cast<size_t>(parts)]),
             tensor.dtype,
             {rows, tensor.shape[2]},
             tensor.bytes.subspan(i * bytes, bytes)});
      }
    }
    copy.tensors = std::move(split);
    expect_golden(copy);
  }
}

TEST(Spellings, EmptyArchitectures) {
  Copy copy("deepseek_plain");
  copy.config["architectures"] = json::array();
  expect_golden(copy);
}

// A null is false: the pairs of this model's rotation are (i, i + d/2).
TEST(Spellings, NullRopeInterleave) {
  Copy copy("deepseek_odd");
  ASSERT_EQ(copy.config["rope_interleave"], false);
  copy.config["rope_interleave"] = nullptr;
  copy.config["norm_topk_prob"] = nullptr;
  expect_golden(copy);
}

// The head lies outside the text model, so that the wrapper's key decides.
TEST(Spellings, TiedByTheOuterKey) {
  Copy copy("qwen3_5_moe_plain");
  copy.config["tie_word_embeddings"] = true;
  ASSERT_EQ(copy.config["text_config"]["tie_word_embeddings"], false);
  expect_golden(copy);  // a head of its own, which differs, is used
  const auto head =
      std::ranges::find(copy.tensors, "lm_head.weight", &tensor_files::TensorToWrite::name);
  const auto rows = head->bytes;
  copy.remove("lm_head.weight");
  const auto tied = copy.difference();
  ASSERT_TRUE(tied.ok()) << tied.status().message();
  EXPECT_GT(*tied, 0.01) << "the embedding is the head";
  // With the head in the place of the embedding of an equal model, both are the head.
  Copy one("qwen3_5_moe_plain");
  for (auto& tensor : one.tensors) {
    if (tensor.name.ends_with("embed_tokens.weight")) tensor.bytes = rows;
  }
  const auto apart = one.difference();
  one.config["tie_word_embeddings"] = true;
  one.remove("lm_head.weight");
  EXPECT_EQ(one.difference().value(), apart.value());
  one.config["tie_word_embeddings"] = false;
  EXPECT_THAT(one.difference().status().message(), HasSubstr("lm_head.weight"));
}

}  // namespace
}  // namespace wideep::model
