// SPDX-License-Identifier: Apache-2.0
//
// Speculation changes no answer: the digests of all logits are those without drafts, for every
// family, drafter, draft length, batch, parallelism and temperature.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "family_layouts.h"
#include "generated.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "parallel/parallel_config.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using engine::Draft;
using parallel::SpeculativeConfig;
using run::GenerateOptions;
using run::GenerateReport;

constexpr int kMaxTokens = 24;

// Knows the answers, and drafts a part of what comes next: half of its drafts end with a wrong
// token. What it drafts depends on the request and the place only, as ranks must draft alike.
class KnowingDrafter : public engine::Drafter {
 public:
  KnowingDrafter(const GenerateReport& report, int vocabulary) : vocabulary_(vocabulary) {
    for (const run::PromptResult& each : report.results) {
      prompt_lengths_.push_back(each.num_prompt_tokens);
      answers_.push_back(each.tokens);
    }
  }

  Draft draft(int request, std::span<const int32_t> more, int max) override {
    const auto index = static_cast<size_t>(request);
    int& seen = seen_[request];
    seen += static_cast<int>(more.size());
    const int generated = seen - prompt_lengths_[index];
    std::mt19937 rng(static_cast<uint32_t>(request * 1000 + generated));
    const int count = max <= 0 ? 0 : static_cast<int>(rng() % static_cast<uint32_t>(max + 1));
    Draft draft;
    for (int i = generated; i < generated + count; ++i) {
      draft.tokens.push_back(answers_[index].at(static_cast<size_t>(i)));
    }
    if (count > 0 && rng() % 2 == 0) {
      draft.tokens.back() = (draft.tokens.back() + 1) % vocabulary_;
    }
    return draft;
  }
  void end(int request) override { seen_.erase(request); }
  size_t bytes() const override { return 0; }

 private:
  int32_t vocabulary_;
  std::vector<int> prompt_lengths_;
  std::vector<std::vector<int32_t>> answers_;
  std::map<int, int> seen_;  // tokens of a request
};

std::vector<Layout> layouts() {
  return {{"alone", sizes_of(1, 1, 1)},
          {"ep 2, online", sizes_of(2, 1, 1), true, true, 19},
          {"tp 2, etp 2", sizes_of(2, 1, 1, 2)},
          {"pp 2, ep 2, chunks of 33", sizes_of(2, 2, 1), true, false, 33},
          {"cp 2", sizes_of(1, 1, 2)}};
}

class Speculation : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    write_random_model_like(directory_.path(), GetParam());
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
  }

  GenerateOptions options(const Layout& each, float temperature) const {
    GenerateOptions options;
    options.model_dir = directory_.path();
    options.max_tokens = kMaxTokens;
    options.logits_digest = true;
    options.sampling = {.temperature = temperature, .seed = 7};
    // The second answer ends one page and begins another.
    options.prompts = {"The captain looked at the sea", std::string(115, 'x') + " two pages", "x"};
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    set_layout(each, &options);
    if (!each.online) return options;
    options.parallel.moe_config.load_balancer = {.num_slots = 16, .layer_updates_per_iter = 1};
    move_all_the_time(config_, &options);
    return options;
  }

  const base::ScratchDirectory directory_;
  model::ModelConfig config_;
};

// All families, with drafts that are right and wrong at every place.
TEST_P(Speculation, ChangesNoBitOfAnyFamily) {
  for (const float temperature : {0.0f, 0.8f}) {
    for (const Layout& each : layouts()) {
      GenerateOptions plain = options(each, temperature);
      if (!model::check_parts(plain.parallel, config_).ok()) continue;
      if (base::kSanitized && each.online) continue;
      SCOPED_TRACE(fmt::format("{}, temperature {}", each.name, temperature));
      const GenerateReport without = run(plain);
      GenerateOptions drafted = plain;
      drafted.parallel.speculative_config = {.type = SpeculativeConfig::Type::kSuffix,
                                             .max_draft_len = 6};
      drafted.adjust_speculation = [&](engine::SpeculationOptions& speculation) {
        speculation.make_drafter = [&] {
          return std::make_unique<KnowingDrafter>(without, config_.vocab_size);
        };
      };
      const GenerateReport with = run(drafted);
      ASSERT_EQ(digests(with), digests(without));
      EXPECT_GT(with.load.speculation.accepted, 20);
      EXPECT_GT(with.load.speculation.drafted, with.load.speculation.accepted);
      EXPECT_LT(with.load.num_iterations, without.load.num_iterations);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Speculation,
    testing::Values("deepseek_v2_groups", "deepseek_v32_plain", "deepseek_v4_heavy",
                    "deepseek_v4_plain", "ernie4_5_moe_plain", "glm4_moe_norm_bias",
                    "glm4_moe_lite_plain", "glm_moe_dsa_shared", "gpt_oss_plain",
                    "granitemoe_plain", "granitemoehybrid_groups", "hunyuan_v1_moe_lists",
                    "kimi_k2_plain", "lfm2_moe_plain", "llama4_scout", "minimax_m2_plain",
                    "mixtral_window", "olmoe_clip", "qwen2_moe_dense", "qwen3_5_moe_plain",
                    "qwen3_next_plain", "kimi_linear_plain", "nemotron_h_latent",
                    "glm5_next_plain"),
    [](const auto& test) { return test.param; });

// The prediction layer of each family that has one.
class SpeculationMtp : public Speculation {};

// And the drafts are the same in every layout, so that as many are right.
TEST_P(SpeculationMtp, ChangesNoBit) {
  for (const float temperature : {0.0f, 0.8f}) {
    std::map<int, std::pair<int64_t, int64_t>> counts;  // by length: drafted, accepted
    for (const Layout& each : layouts()) {
      GenerateOptions plain = options(each, temperature);
      if (!model::check_parts(plain.parallel, config_).ok() || each.sizes.cp > 1) continue;
      if (base::kSanitized && each.online) continue;
      const auto expected = digests(run(plain));
      for (const int length : {1, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} drafts, temperature {}", each.name, length, temperature));
        GenerateOptions drafted = plain;
        drafted.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                               .max_draft_len = length};
        const GenerateReport with = run(drafted);
        ASSERT_EQ(digests(with), expected);
        const run::SpeculationTotals& all = with.load.speculation;
        EXPECT_GT(all.drafted, 55 * length);
        const std::pair found(all.drafted, all.accepted);
        EXPECT_EQ(counts.try_emplace(length, found).first->second, found);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SpeculationMtp,
                         testing::Values("deepseek_v32_groups", "deepseek_v4_heavy",
                                         "deepseek_v4_plain", "glm4_moe_norm_bias",
                                         "glm4_moe_lite_unfactored", "glm_moe_dsa_shared",
                                         "hy_v3_published", "nemotron_h_plain", "qwen3_5_moe_plain",
                                         "qwen3_next_plain"),
                         [](const auto& test) { return test.param; });

// A layer for each draft.
TEST(SpeculationMtpDrafts, OfSeveralLayersChangeNoBit) {
  const base::ScratchDirectory directory;
  write_random_model(directory.path(), {.family = "deepseek_v3", .num_predicting = 3});
  const model::ModelConfig config = model::read_model_config(directory.path()).value();
  GenerateOptions plain;
  plain.model_dir = directory.path();
  plain.max_tokens = 60;
  plain.logits_digest = true;
  for (int i = 0; i < 6; ++i) plain.prompts.push_back(std::string(3 + 30 * i, 'a') + "b");
  for (const float temperature : {0.0f, 0.7f}) {
    plain.sampling = {.temperature = temperature, .seed = 4};
    for (const Layout& each : layouts()) {
      if (each.sizes.cp > 1 || (base::kSanitized && each.online)) continue;
      GenerateOptions options = plain;
      options.parallel = parallel::parallel_config_for_ranks(1).value();
      set_layout(each, &options);
      options.parallel.max_num_tokens = 40;
      options.parallel.max_batch_size = 4;
      if (each.online) {
        options.parallel.moe_config.load_balancer = {.num_slots = 20, .layer_updates_per_iter = 1};
        move_all_the_time(config, &options);
      }
      const auto expected = digests(run(options));
      for (const int length : {2, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} layers, temperature {}", each.name, length, temperature));
        options.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                               .max_draft_len = length};
        const GenerateReport with = run(options);
        ASSERT_EQ(digests(with), expected);
        EXPECT_GT(with.load.speculation.drafted, 250 * length);
      }
    }
  }
}

// The reference model, whose layer is trained: its drafts are mostly right, and the same in every
// layout, as its keys and values are, whatever was drafted wrongly before.
TEST(SpeculationMtpDrafts, AreTheSameInEveryLayout) {
  GenerateOptions plain;
  plain.model_dir = WIDEEP_SOURCE_DIR "/models/reference";
  plain.max_tokens = 70;  // over the end of a page
  plain.logits_digest = true;
  plain.prompts = {"And the king said to his servants,", "def read_file(self, path):\n",
                   "English: Select the file to open.\nGerman:",
                   "Question: Anna has 12 apples. At a shop Anna buys 7 more. How many apples does "
                   "Anna have now?\nAnswer:"};
  for (const float temperature : {0.0f, 0.5f}) {
    plain.sampling = {.temperature = temperature, .seed = 5};
    for (const int length : {1, 4}) {
      std::optional<int64_t> accepted, drafted;
      for (const Layout& each : layouts()) {
        if (each.sizes.cp > 1 || (base::kSanitized && each.online)) continue;
        SCOPED_TRACE(fmt::format("{}, {} drafts, temperature {}", each.name, length, temperature));
        GenerateOptions options = plain;
        options.parallel = parallel::parallel_config_for_ranks(1).value();
        set_layout(each, &options);
        const auto expected = digests(run(options));
        options.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                               .max_draft_len = length};
        const GenerateReport with = run(options);
        ASSERT_EQ(digests(with), expected);
        const run::SpeculationTotals& all = with.load.speculation;
        if (!accepted) accepted = all.accepted, drafted = all.drafted;
        EXPECT_EQ(all.accepted, accepted);
        EXPECT_EQ(all.drafted, drafted);
        EXPECT_GT(all.acceptance_rate(), length == 1 && temperature == 0 ? 0.7 : 0.3);
      }
      // Ranks that share the head, so that each finds the maxima of a part of the vocabulary.
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(fmt::format("head of {} ranks, {} drafts", ranks, length));
        GenerateOptions options = plain;
        options.parallel = parallel::parallel_config_for_ranks(ranks).value();
        options.parallel.enable_lm_head_tp_in_adp = true;
        options.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                               .max_draft_len = length};
        const GenerateReport with = run(options);
        EXPECT_EQ(with.load.speculation.accepted, accepted);
        EXPECT_EQ(with.load.speculation.drafted, drafted);
      }
    }
  }
}

// Ranks give up alone, when their own requests end: the others go on drafting. A chain, and layers.
TEST(SpeculationMtpDrafts, RanksMayGiveUpAlone) {
  for (const int layers : {1, 3}) {
    const base::ScratchDirectory directory;
    write_random_model(directory.path(), {.family = "deepseek_v3", .num_predicting = layers});
    GenerateOptions plain;
    plain.model_dir = directory.path();
    plain.max_tokens = 40;
    plain.logits_digest = true;
    for (int i = 0; i < 9; ++i) plain.prompts.push_back(std::string(3 + 40 * (i % 3), 'a') + "b");
    for (const int ranks : {1, 2}) {
      plain.parallel = parallel::parallel_config_for_ranks(ranks).value();
      plain.parallel.max_batch_size = 3;
      plain.parallel.max_num_tokens = 30;
      const auto expected = digests(run(plain));
      SCOPED_TRACE(fmt::format("{} layers, {} ranks", layers, ranks));
      GenerateOptions drafted = plain;
      drafted.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                             .max_draft_len = 3,
                                             .acceptance_window = 1,
                                             .acceptance_length_threshold = 0.9};
      const GenerateReport with = run(drafted);
      ASSERT_EQ(digests(with), expected);
      EXPECT_EQ(with.load.speculation.given_up, ranks);
      // With few requests in a step alone, and with lengths by their number.
      drafted = plain;
      drafted.parallel.enable_lm_head_tp_in_adp = true;
      drafted.parallel.speculative_config = {.type = SpeculativeConfig::Type::kMtp,
                                             .max_draft_len = 3,
                                             .max_concurrency = 2,
                                             .draft_len_schedule = {{1, 3}, {2, 1}}};
      const GenerateReport some = run(drafted);
      ASSERT_EQ(digests(some), expected);
      EXPECT_GT(some.load.speculation.drafted, 0);
    }
  }
}

// A cache that is too small for all, so that requests are paused, and pages that requests share.
TEST(SpeculationMtpDrafts, ChangeNoBitWithoutRoom) {
  GenerateOptions plain;
  plain.model_dir = WIDEEP_SOURCE_DIR "/models/reference";
  plain.max_tokens = 100;
  plain.logits_digest = true;
  const std::string begin = "And the king said to his servants, ";
  for (int i = 0; i < 6; ++i) plain.prompts.push_back(begin + begin + begin + std::to_string(i));
  plain.parallel = parallel::parallel_config_for_ranks(1).value();
  plain.parallel.scheduler_config.capacity_scheduler_policy = "MAX_UTILIZATION";
  plain.parallel.kv_cache_config.max_tokens = 7 * 64;
  plain.parallel.max_num_tokens = 40;
  plain.parallel.max_batch_size = 6;
  const auto expected = digests(run(plain));
  for (const int length : {1, 5}) {
    GenerateOptions drafted = plain;
    drafted.parallel.speculative_config = {
        .type = SpeculativeConfig::Type::kMtp, .max_draft_len = length, .sa_spec_threshold = 6};
    const GenerateReport with = run(drafted);
    ASSERT_EQ(digests(with), expected);
    EXPECT_GT(with.load.speculation.acceptance_rate(), 0.5);
  }
}

// The real drafters, on texts that repeat themselves.
TEST(SpeculationDrafters, ChangeNoBit) {
  const base::ScratchDirectory directory;
  write_random_model(directory.path(), {.family = "deepseek_v3"});
  GenerateOptions plain;
  plain.model_dir = directory.path();
  plain.max_tokens = 80;
  plain.logits_digest = true;
  for (int i = 0; i < 4; ++i) {
    std::string text =
        std::string(static_cast<size_t>(3 + i), static_cast<char>('a' + i)) + " and ";
    for (int turn = 0; turn < 4; ++turn) text += text.substr(0, 12);
    plain.prompts.push_back(text);
  }
  int64_t accepted = 0, drafted = 0;
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    plain.sampling = {.temperature = temperature, .seed = 3};
    plain.parallel = parallel::parallel_config_for_ranks(1).value();
    const auto expected = digests(run(plain));
    for (const Layout& each : layouts()) {
      for (const int length : {1, 3, 8}) {
        for (const auto type : {SpeculativeConfig::Type::kNgram, SpeculativeConfig::Type::kSuffix,
                                SpeculativeConfig::Type::kAuto}) {
          if (type == SpeculativeConfig::Type::kAuto && length != 8) continue;
          for (const int batch : {1, 4}) {
            if (base::kSanitized && (length == 3 || batch == 1)) continue;
            if (each.sizes.cp > 1 && length != 8) continue;
            GenerateOptions options = plain;
            set_layout(each, &options);
            options.parallel.max_batch_size = batch;
            options.parallel.max_num_tokens = 16;
            options.parallel.speculative_config = {
                .type = type, .max_draft_len = length, .is_public_pool = length != 3};
            const GenerateReport report = run(options);
            const bool sums_split = each.sizes.tp > 1 && !each.attention_dp;
            if (sums_split || each.sizes.cp > 1) {
              options.parallel.speculative_config.reset();
              ASSERT_EQ(digests(report), digests(run(options)))
                  << each.name << " length " << length;
            } else {
              ASSERT_EQ(digests(report), expected) << each.name << " length " << length;
            }
            accepted += report.load.speculation.accepted;
            drafted += report.load.speculation.drafted;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(drafted, accepted);
}

}  // namespace
}  // namespace wideep::tests
