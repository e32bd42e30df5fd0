// SPDX-License-Identifier: Apache-2.0
//
// The shipped description of an H100, with its range changed by hand, is held against what the
// advisor says of a small mixture of experts. A width beyond the range is refused, formats and
// ranks beyond it are left out and counted, tokens are bounded, and the line that says so names the
// range. A failure means that a user is told a time which no measurement is behind, or that a
// layout disappears without a word.
#include "advise/range.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "advise/advise.h"
#include "model/model_division.h"

namespace wideep::advise {
namespace {

using kernels::WeightFormat;
using testing::HasSubstr;

model::ModelConfig mixture(int hidden) {
  const auto config = model::parse_model_config(
      fmt::format(R"({{"model_type": "qwen3_moe", "vocab_size": 32000, "hidden_size": {},
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 4096, "moe_intermediate_size": 1024, "num_experts": 64,
    "num_experts_per_tok": 4, "norm_topk_prob": true, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "decoder_sparse_step": 1, "mlp_only_layers": []}})",
                  hidden),
      "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

Result<Advice> advise_on(const cost::Hardware& hardware, int hidden, const Choices& choices) {
  const model::ModelConfig config = mixture(hidden);
  const balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  return advise({.hardware = hardware,
                 .config = config,
                 .planned = load,
                 .judged = load,
                 .choices = choices});
}

cost::Hardware h100() { return cost::shipped_hardware("h100_sxm").value(); }

TEST(Range, WidthsBeyondItAreRefused) {
  const auto narrow = advise_on(h100(), 1024, {});
  ASSERT_FALSE(narrow.ok());
  EXPECT_THAT(narrow.status().message(),
              HasSubstr("cannot tell: the model's rows have 1024 elements, but h100_sxm is "
                        "calibrated for 2048 to 7168"));
  EXPECT_FALSE(advise_on(h100(), 8192, {}).ok());
  EXPECT_TRUE(advise_on(h100(), 2048, {}).ok());
}

TEST(Range, FormatsAndRanksBeyondItAreNotWeighed) {
  cost::Hardware hardware = h100();
  hardware.range.max_ranks = 8;
  const auto advice = advise_on(hardware, 2048, {.max_ranks = 16});
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  EXPECT_GT(advice->outside.at("bf16"), 0);
  EXPECT_GT(advice->outside.at("more than 8 ranks"), 0);
  for (const Candidate& candidate : advice->all) {
    EXPECT_EQ(candidate.layout.format, WeightFormat::kFp8);
    EXPECT_LE(candidate.layout.tensor_ranks(), 8);
  }
  EXPECT_THAT(cannot_tell(hardware, {{"bf16", 3}, {"int8", 2}}),
              "cannot tell of 5 layouts, 3 of bf16, 2 of int8: h100_sxm is calibrated for fp8, at "
              "most 8 ranks");
}

TEST(Range, AnErrorWhereNothingIsLeft) {
  const auto advice = advise_on(h100(), 2048, {.formats = {WeightFormat::kBf16}});
  ASSERT_FALSE(advice.ok());
  EXPECT_THAT(advice.status().message(), HasSubstr("cannot tell of"));
  EXPECT_THAT(advice.status().message(), HasSubstr("h100_sxm is calibrated for fp8"));
}

TEST(Range, RanksThatShareCoresCountWhateverTheyShare) {
  cost::Hardware hardware = h100();
  hardware.range.max_ranks = 8;
  const cost::Layout stages{.ep = 8, .stages = 2, .format = WeightFormat::kFp8};
  EXPECT_EQ(outside_range(hardware, stages), "");
  hardware.divisible = true;
  EXPECT_EQ(outside_range(hardware, stages), "more than 8 ranks");
}

TEST(Range, TokensAreBounded) {
  Choices choices{.max_num_tokens = 1 << 20};
  EXPECT_THAT(bound_tokens(h100(), &choices), HasSubstr("cannot tell beyond 16384"));
  EXPECT_EQ(choices.max_num_tokens, 16384);
  EXPECT_EQ(bound_tokens(h100(), &choices), "");
}

TEST(Range, ADescriptionWithoutItTellsAll) {
  cost::Hardware hardware = h100();
  hardware.range = {};
  const auto advice = advise_on(hardware, 1024, {.max_ranks = 4});
  ASSERT_TRUE(advice.ok());
  EXPECT_TRUE(advice->outside.empty());
}

}  // namespace
}  // namespace wideep::advise
