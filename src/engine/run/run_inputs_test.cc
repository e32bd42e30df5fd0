// SPDX-License-Identifier: Apache-2.0
//
// Ranks on several nodes compare fingerprints before they load. Each test changes one thing that
// would make them answer differently, a file of the tokenizer, a bit of the weights, a seed; the
// fingerprint must change, and that of a copy must not. The last test holds which end tokens follow
// from Harmony's special tokens. A failure is a run whose ranks read one prompt as different
// tokens, or an answer that does not end.
#include "run/run_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "weights/random_tensors.h"

namespace wideep::run {
namespace {

// Ranks on several nodes would make other tokens of one prompt.
TEST(Fingerprints, EveryFileOfATokenizerCounts) {
  const base::ScratchDirectory model;
  const RunOptions options{.model_dir = model.path()};
  RunInputs inputs;
  inputs.kernels = kernels::select_kernels(nullptr).value();
  inputs.own_tensors = std::make_unique<weights::RandomTensors>(1);
  transport::Settings before = fingerprints(options, inputs);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "added_tokens.json",
                           "special_tokens_map.json", "tiktoken.model", "hy.tiktoken"}) {
    ASSERT_TRUE(formats::write_file(model.file(file), "{}").ok());
    const transport::Settings after = fingerprints(options, inputs);
    EXPECT_NE(before, after) << file;
    before = after;
  }
}

std::string fingerprint_of(const RunOptions& options) {
  const auto inputs = read_run_inputs(options);
  EXPECT_TRUE(inputs.ok()) << inputs.status().message();
  if (!inputs.ok()) return {};
  for (const auto& [name, value] : fingerprints(options, *inputs)) {
    if (name.starts_with("the weights")) return value;
  }
  ADD_FAILURE() << "the weights are not compared";
  return {};
}

// Another training of a model has the same config.json and tokenizer.
TEST(Fingerprints, WeightsCount) {
  const std::string reference = WIDEEP_SOURCE_DIR "/models/reference";
  const base::ScratchDirectory copy;
  std::filesystem::copy(reference, copy.path());
  const std::string before = fingerprint_of({.model_dir = reference});
  EXPECT_EQ(fingerprint_of({.model_dir = copy.path()}), before);  // other files, other times
  std::string weights = formats::read_file(copy.file("model.safetensors")).value();
  weights.back() = static_cast<char>(weights.back() ^ 1);
  ASSERT_TRUE(formats::write_file(copy.file("model.safetensors"), weights).ok());
  EXPECT_NE(fingerprint_of({.model_dir = copy.path()}), before);
}

TEST(Fingerprints, RandomWeightsCountBySeed) {
  const std::string reference = WIDEEP_SOURCE_DIR "/models/reference";
  const RunOptions one{.model_dir = reference, .random_weights = 1};
  const RunOptions two{.model_dir = reference, .random_weights = 2};
  EXPECT_EQ(fingerprint_of(one), fingerprint_of(one));
  EXPECT_NE(fingerprint_of(one), fingerprint_of(two));
  EXPECT_NE(fingerprint_of(one), fingerprint_of({.model_dir = reference}));
}

// The reference with these special tokens, from id 8192 on, of which the first one ends answers.
std::vector<int> end_tokens_with(const std::vector<std::string>& special) {
  const std::string reference = WIDEEP_SOURCE_DIR "/models/reference/";
  const base::ScratchDirectory model;
  const auto copy = [&](const std::string& name, const auto& edit) {
    auto file = nlohmann::json::parse(formats::read_file(reference + name).value());
    edit(file);
    ASSERT_TRUE(formats::write_file(model.file(name), file.dump()).ok());
  };
  copy("config.json", [](auto& file) { file["vocab_size"] = 8256; });
  copy("generation_config.json", [](auto& file) { file["eos_token_id"] = 8192; });
  copy("tokenizer.json", [&](auto& file) {
    int id = 8192;
    for (const std::string& name : special) {
      file["added_tokens"].push_back({{"id", id++},
                                      {"content", name},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    }
  });
  const auto inputs = read_run_inputs({.model_dir = model.path(), .random_weights = 1});
  EXPECT_TRUE(inputs.ok()) << inputs.status().message();
  return inputs.ok() ? inputs->model.config.eos_token_ids : std::vector<int>();
}

TEST(RunInputs, CallsHaveFurtherEndTokens) {
  using testing::ElementsAre;
  EXPECT_THAT(end_tokens_with({"<|return|>", "<|call|>", "<|end|>", "<|endoftext|>"}),
              ElementsAre(8192, 8195, 8193));
  EXPECT_THAT(end_tokens_with({"<|return|>"}), ElementsAre(8192));
  EXPECT_THAT(end_tokens_with({"<turn|>", "<|tool_response>"}), ElementsAre(8192, 8193));
  EXPECT_THAT(end_tokens_with({"<|flush|>", "<|call|>", "<|calls|>"}), ElementsAre(8192, 8194));
  EXPECT_THAT(end_tokens_with({"<|end|>", "<|call|>", "<|return|>"}), ElementsAre(8192));
}

}  // namespace
}  // namespace wideep::run
