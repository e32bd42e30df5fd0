// SPDX-License-Identifier: Apache-2.0
//
// Keys, defaults and the table by batch size of AUTO are TensorRT-LLM's. Each mistake is held by
// its message, with file and line. A key that the chosen method does not read must be refused or
// named in a note, for a user who sets it believes that it acts.
#include "parallel/speculative_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/parallel_config.h"

namespace wideep::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using Type = SpeculativeConfig::Type;

Result<ParallelConfig> parse(const std::string& settings, const std::string& more = "") {
  return parse_parallel_config("speculative_config: {" + settings + "}\n" + more, "config.yaml");
}

ParallelConfig accepted(const std::string& settings, const std::string& more = "") {
  const Result<ParallelConfig> config = parse(settings, more);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ParallelConfig();
}

std::string complaint(const std::string& settings) {
  const Result<ParallelConfig> config = parse(settings);
  return config.ok() ? "accepted" : config.status().message();
}

TEST(SpeculativeConfig, ReadsEveryKey) {
  const ParallelConfig all = accepted(
      "decoding_type: NGram, max_draft_len: 5, max_matching_ngram_size: 3, is_keep_all: true, "
      "is_use_oldest: false, is_public_pool: false, max_concurrency: 16, draft_len_schedule: {1: "
      "5, "
      "8: 2, 32: 0}, acceptance_window: 10, acceptance_length_threshold: 1.25, max_pool_bytes: "
      "1000000, allow_advanced_sampling: true");
  ASSERT_TRUE(all.speculative_config.has_value());
  const SpeculativeConfig& config = *all.speculative_config;
  EXPECT_EQ(config.type, Type::kNgram);
  EXPECT_EQ(config.max_draft_len, 5);
  EXPECT_EQ(config.max_matching_ngram_size, 3);
  EXPECT_FALSE(config.is_use_oldest);
  EXPECT_FALSE(config.is_public_pool);
  EXPECT_EQ(config.max_concurrency, 16);
  EXPECT_THAT(config.draft_len_schedule, ElementsAre(Pair(1, 5), Pair(8, 2), Pair(32, 0)));
  EXPECT_EQ(config.acceptance_window, 10);
  EXPECT_EQ(config.acceptance_length_threshold, 1.25);
  EXPECT_EQ(config.max_pool_bytes, 1'000'000);
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("allow_advanced_sampling has no effect")));
}

TEST(SpeculativeConfig, Defaults) {
  const SpeculativeConfig ngram =
      *accepted("decoding_type: NGram, max_draft_len: 4").speculative_config;
  EXPECT_EQ(ngram.max_matching_ngram_size, 2);
  EXPECT_TRUE(ngram.is_use_oldest);
  EXPECT_TRUE(ngram.is_public_pool);
  EXPECT_FALSE(ngram.max_concurrency.has_value());
  EXPECT_EQ(accepted("decoding_type: SA, max_draft_len: 4").speculative_config->type,
            Type::kSuffix);
  const SpeculativeConfig automatic = *accepted("decoding_type: auto").speculative_config;
  EXPECT_EQ(automatic.type, Type::kAuto);
  EXPECT_EQ(automatic.max_draft_len, 8);
  EXPECT_FALSE(parse_parallel_config("", "config.yaml")->speculative_config.has_value());
}

// TensorRT-LLM's table.
TEST(SpeculativeConfig, AutoByConcurrency) {
  const auto of_batch = [](int batch) {
    return accepted("decoding_type: AUTO", "max_batch_size: " + std::to_string(batch));
  };
  for (const int batch : {1, 4}) {
    EXPECT_EQ(of_batch(batch).speculative_config->max_draft_len, 5);
    EXPECT_EQ(of_batch(batch).speculative_config->max_matching_ngram_size, 3);
  }
  for (const int batch : {5, 32}) {
    EXPECT_EQ(of_batch(batch).speculative_config->max_draft_len, 3);
    EXPECT_EQ(of_batch(batch).speculative_config->max_matching_ngram_size, 5);
  }
  EXPECT_FALSE(of_batch(33).speculative_config.has_value());
  EXPECT_THAT(of_batch(33).notes, ElementsAre(HasSubstr("drafts nothing")));
}

TEST(SpeculativeConfig, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> all[] = {
      {"max_draft_len: 3",
       "speculative_config.decoding_type: missing; expected one of NGram, SA, MTP, AUTO, auto"},
      {"decoding_type: ngram, max_draft_len: 3",
       "decoding_type: expected one of NGram, SA, MTP, AUTO, auto, found 'ngram'"},
      {"decoding_type: MTP, num_nextn_predict_layers: 0", "num_nextn_predict_layers: expected"},
      {"decoding_type: MTP, num_nextn_predict_layers: 3, max_draft_len: 2",
       "max_draft_len: 2 contradicts num_nextn_predict_layers 3, the older name of the same"},
      {"decoding_type: MTP, relaxed_topk: 3", "relaxed_topk: has no effect without"},
      {"decoding_type: MTP, max_pool_bytes: 100000", "max_pool_bytes: has no effect without"},
      {"decoding_type: MTP, sa_spec_threshold: 3", "sa_spec_threshold: has no effect without"},
      {"decoding_type: MTP, is_public_pool: true", "is_public_pool: expected decoding_type NGram"},
      {"decoding_type: SA, max_draft_len: 3, num_nextn_predict_layers: 2",
       "num_nextn_predict_layers"},
      {"decoding_type: Eagle3, max_draft_len: 3", "decoding_type: Eagle3 is not supported"},
      {"decoding_type: NGram", "max_draft_len: missing"},
      {"decoding_type: NGram, max_draft_len: 0", "max_draft_len: expected"},
      {"decoding_type: NGram, max_draft_len: 65", "max_draft_len: expected"},
      {"decoding_type: AUTO, max_draft_len: 3", "max_draft_len: AUTO chooses it"},
      {"decoding_type: SA, max_draft_len: 3, is_public_pool: true",
       "is_public_pool: expected decoding_type NGram beside it, found SA"},
      {"decoding_type: SA, max_draft_len: 3, acceptance_window: 3",
       "acceptance_window: has no effect alone"},
      {"decoding_type: SA, max_draft_len: 3, max_matching_ngram_size: 2",
       "max_matching_ngram_size: expected -1 (the longest match) with decoding_type SA, found 2"},
      {"decoding_type: NGram, max_draft_len: 3, max_matching_ngram_size: -1",
       "max_matching_ngram_size: expected"},
      {"decoding_type: MTP, sa_config: {}, use_sa_spec: true", "use_sa_spec: an older name"},
      {"decoding_type: MTP, sa_config: {thresold: 3}", "sa_config.thresold: unknown key"},
      {"decoding_type: SA, max_draft_len: 3, acceptance_rate_threshold: 0.5",
       "acceptance_rate_threshold: has no effect alone"},
      {"decoding_type: SA, max_draft_len: 3, acceptance_rate_window_size: 4",
       "acceptance_rate_window_size: has no effect alone"},
      {"decoding_type: SA, max_draft_len: 3, draft_len_schedule: {4: 2, 8: 1}",
       "draft_len_schedule: expected an entry 4: 3"},
      {"decoding_type: SA, max_draft_len: 3, draft_len_schedule: {1: 2}",
       "draft_len_schedule: expected an entry 1: 3"},
      {"decoding_type: SA, max_draft_len: 3, draft_len_schedule: {1: 3, 4: 5}",
       "draft_len_schedule.4: expected"},
      {"decoding_type: SA, max_draft_len: 3, draft_len_schedule: {1: 3, x: 0}",
       "draft_len_schedule.x: expected a batch size"},
      {"decoding_type: SA, max_draft_len: 3, max_pool_bytes: 10", "max_pool_bytes: expected"},
      {"decoding_type: SA, max_draft_len: 3, speculative_model: x", "speculative_model"},
  };
  for (const auto& [settings, message] : all) {
    EXPECT_THAT(complaint(settings), HasSubstr(message)) << settings;
    EXPECT_THAT(complaint(settings), HasSubstr("config.yaml:1: speculative_config.")) << settings;
  }
}

TEST(SpeculativeConfig, Mtp) {
  const SpeculativeConfig one = *accepted("decoding_type: MTP").speculative_config;
  EXPECT_EQ(one.type, Type::kMtp);
  EXPECT_EQ(one.max_draft_len, 1);
  EXPECT_FALSE(one.sa_spec_threshold.has_value());
  EXPECT_FALSE(one.relaxed.has_value());
  const ParallelConfig all = accepted(
      "decoding_type: MTP, num_nextn_predict_layers: 3, max_draft_len: 3, use_mtp_vanilla: false, "
      "mtp_eagle_one_model: true, use_sa_spec: true, use_relaxed_acceptance_for_thinking: true, "
      "relaxed_topk: 10, relaxed_delta: 0.6, begin_thinking_phase_token: 5, "
      "end_thinking_phase_token: 6");
  EXPECT_EQ(all.speculative_config->max_draft_len, 3);
  EXPECT_EQ(all.speculative_config->sa_spec_threshold, 4);
  EXPECT_EQ(all.speculative_config->relaxed,
            (RelaxedAcceptance{.topk = 10, .delta = 0.6, .begin_token = 5, .end_token = 6}));
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("changes answers")));
}

// TensorRT-LLM's newer keys of MTP; the older ones are in the test above.
TEST(SpeculativeConfig, MtpInItsNewerForm) {
  const SpeculativeConfig three =
      *accepted("decoding_type: MTP, max_draft_len: 3").speculative_config;
  EXPECT_EQ(three.max_draft_len, 3);
  const ParallelConfig with_suffixes = accepted(
      "decoding_type: MTP, max_draft_len: 3, max_total_draft_tokens: 3, sa_config: {threshold: 6, "
      "enable_global_pool: false}, max_pool_bytes: 10000");
  EXPECT_EQ(with_suffixes.speculative_config->sa_spec_threshold, 6);
  EXPECT_THAT(with_suffixes.notes,
              ElementsAre(HasSubstr("speculative_config.sa_config.enable_global_pool: false")));
  EXPECT_EQ(accepted("decoding_type: MTP, sa_config: {}").speculative_config->sa_spec_threshold, 4);
}

// Explicit defaults: nothing is relaxed, and nothing refused.
TEST(SpeculativeConfig, DefaultsMayBeWritten) {
  const ParallelConfig strict = accepted(
      "decoding_type: MTP, relaxed_topk: 1, relaxed_delta: 0.0, use_sa_spec: false, "
      "begin_thinking_phase_token: 128798, use_rejection_sampling: false");
  EXPECT_FALSE(strict.speculative_config->relaxed.has_value());
  EXPECT_THAT(strict.notes, IsEmpty());
  const ParallelConfig one = accepted(
      "decoding_type: MTP, use_relaxed_acceptance_for_thinking: true, relaxed_topk: 1, "
      "relaxed_delta: 0.6");
  EXPECT_FALSE(one.speculative_config->relaxed.has_value());
  EXPECT_THAT(one.notes, ElementsAre(HasSubstr("has no effect with relaxed_topk 1")));
  EXPECT_EQ(accepted("decoding_type: SA, max_draft_len: 3, max_matching_ngram_size: -1")
                .speculative_config->type,
            Type::kSuffix);
}

// Without an entry 1, entries are the largest batches of their lengths: 1 to 4, 5 to 8, 9 to 32.
TEST(SpeculativeConfig, SchedulesOfBothForms) {
  const auto schedule = [](const std::string& entries) {
    return accepted("decoding_type: SA, max_draft_len: 4, draft_len_schedule: {" + entries + "}")
        .speculative_config->draft_len_schedule;
  };
  EXPECT_THAT(schedule("4: 4, 8: 2, 32: 1"),
              ElementsAre(Pair(1, 4), Pair(5, 2), Pair(9, 1), Pair(33, 0)));
  EXPECT_THAT(schedule("1: 4, 8: 2, 32: 0"), ElementsAre(Pair(1, 4), Pair(8, 2), Pair(32, 0)));
}

TEST(SpeculativeConfig, RatesOfAcceptance) {
  const SpeculativeConfig config =
      *accepted(
           "decoding_type: SA, max_draft_len: 4, acceptance_rate_window_size: 100, "
           "acceptance_rate_threshold: 0.3")
           .speculative_config;
  EXPECT_EQ(config.acceptance_rate_window, 100);
  EXPECT_EQ(config.acceptance_rate_threshold, 0.3);
  EXPECT_FALSE(accepted("decoding_type: SA, max_draft_len: 4, acceptance_rate_window_size: 0")
                   .speculative_config->acceptance_rate_window.has_value());
}

TEST(SpeculativeConfig, KeepAllChangesNothing) {
  EXPECT_THAT(accepted("decoding_type: NGram, max_draft_len: 3, is_keep_all: false").notes,
              ElementsAre(HasSubstr("is_keep_all: false has no effect")));
  EXPECT_THAT(accepted("decoding_type: NGram, max_draft_len: 3, is_keep_all: true").notes,
              IsEmpty());
}

}  // namespace
}  // namespace wideep::parallel
