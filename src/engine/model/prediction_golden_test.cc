// SPDX-License-Identifier: Apache-2.0
//
// Multi-token prediction against transformers': tests/golden/README.md describes the files of
// tests/golden/prediction_models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/golden_testing.h"

namespace wideep::model {
namespace {

constexpr int kChain = 3;  // drafts after a token

struct PredictionCase {
  std::string model;
  const kernels::Kernels* kernels;
};

std::vector<PredictionCase> prediction_cases() {
  std::vector<PredictionCase> all;
  for (const auto& entry :
       std::filesystem::directory_iterator(WIDEEP_SOURCE_DIR "/tests/golden/prediction_models")) {
    // Several layers: engine/speculation/mtp_drafter_test.cc.
    if (entry.path().filename().string().ends_with("_layers")) continue;
    for (const kernels::Kernels* table : kernels::all_kernels()) {
      all.push_back({entry.path().filename(), table});
    }
  }
  std::ranges::sort(
      all, {}, [](const PredictionCase& each) { return std::pair(each.model, each.kernels->isa); });
  return all;
}

class PredictionGolden : public testing::TestWithParam<PredictionCase> {};

INSTANTIATE_TEST_SUITE_P(Model, PredictionGolden, testing::ValuesIn(prediction_cases()),
                         [](const auto& test) {
                           return fmt::format("{}_{}", test.param.model, test.param.kernels->isa);
                         });

// Rows [begin, end) of the text through the model, then what the prediction layer drafts after each
// of them, and as a chain after the last: [rows][1 or kChain].
Result<std::vector<std::vector<int32_t>>> drafts_after(GoldenRank& rank,
                                                       const std::vector<int32_t>& ids,
                                                       size_t begin, size_t end,
                                                       int prompt_length) {
  Model& model = rank.model();
  Batch batch = batch_of(rank, ids, begin, end, prompt_length);
  std::vector<float> logits;
  WIDEEP_TRY(model.forward(batch, rank.kv(), 0, &logits));
  std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(begin) + 1, end - begin, batch.ids.begin());
  std::vector<const float*> before;
  for (int row = 0; row < batch.num_tokens(); ++row) before.push_back(model.output(row));
  std::vector<int32_t> predicted;
  WIDEEP_TRY(model.predict({.batch = batch, .before = before}, rank.kv(), 0, &predicted));
  std::vector<std::vector<int32_t>> drafts;
  for (const int32_t token : predicted) drafts.push_back({token});
  before = {model.output(batch.num_tokens() - 1)};
  for (size_t i = 1; i < kChain; ++i) {
    Batch next = batch_of(rank, ids, end - 1, end, prompt_length);
    next.ids = {drafts.back().back()};
    next.positions = {static_cast<int32_t>(end - 1 + i)};
    WIDEEP_TRY(model.predict({.batch = next, .before = before}, rank.kv(), 0, &predicted));
    drafts.back().push_back(predicted.front());
    before = {model.output(0)};
  }
  return drafts;
}

// transformers has left out what hangs on a close choice: −1, and all that follows.
void expect_drafts(std::span<const int32_t> found, std::span<const int32_t> expected) {
  for (size_t i = 0; i < found.size() && expected[i] >= 0; ++i) {
    EXPECT_EQ(found[i], expected[i]) << "draft " << i;
  }
}

// The prompt in one step, then token by token. The chain's keys and values are overwritten by those
// of the real tokens.
TEST_P(PredictionGolden, DraftsAreTransformers) {
  const kernels::Kernels& kernels = *GetParam().kernels;
  if (!kernels.supported()) GTEST_SKIP() << "not supported by this processor";
  const std::string dir = WIDEEP_SOURCE_DIR "/tests/golden/prediction_models/" + GetParam().model;
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  int num_prompts = 0;
  for (; golden->find(fmt::format("p{}.ids", num_prompts)) != nullptr; ++num_prompts) {
    const std::string prefix = fmt::format("p{}.", num_prompts);
    SCOPED_TRACE(prefix);
    const auto ids = values<int32_t>(*golden, prefix + "ids");
    const int prompt_length = values<int32_t>(*golden, prefix + "prompt_length").front();
    const auto drafts = values<int32_t>(*golden, prefix + "drafts");
    ASSERT_EQ(drafts.size(), (ids.size() - 1) * kChain);
    const auto expected_after = [&](size_t row) {
      return std::span(drafts).subspan(row * kChain, kChain);
    };
    auto rank = GoldenRank::create(dir, kernels, {WeightFormat::kF32},
                                   static_cast<int>(ids.size()) + kChain, 1);
    ASSERT_TRUE(rank.ok()) << rank.status().message();
    const auto prompt = static_cast<size_t>(prompt_length);
    auto found = drafts_after(**rank, ids, 0, prompt, prompt_length);
    ASSERT_TRUE(found.ok()) << found.status().message();
    for (size_t row = 0; row < prompt; ++row) {
      SCOPED_TRACE(fmt::format("after row {} of a prompt of {}", row, prompt));
      expect_drafts((*found)[row], expected_after(row));
    }
    for (size_t row = prompt; row + 1 < ids.size(); ++row) {
      found = drafts_after(**rank, ids, row, row + 1, prompt_length);
      ASSERT_TRUE(found.ok()) << found.status().message();
      SCOPED_TRACE(fmt::format("after row {}, prompt of {}", row, prompt));
      expect_drafts(found->front(), expected_after(row));
    }
  }
  EXPECT_GE(num_prompts, 3);
}

}  // namespace
}  // namespace wideep::model
