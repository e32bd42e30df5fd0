// SPDX-License-Identifier: Apache-2.0
//
// Shared prefix pages and paused requests change no answer: prompts with common prefixes, in every
// parallelism, without a balancer, with replicas, and while experts move, with ranks that wait for
// each other's prompts, in a cache so small that pages are evicted. The logits of every generated
// step have the same bits as in a run that shares no pages and has a large cache.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "random_model.h"
#include "restless_policy.h"
#include "run/generate.h"
#include "run/layouts.h"

namespace wideep::tests {
namespace {

using run::GenerateOptions;
using run::GenerateReport;

constexpr int kMaxTokens = 140;  // past two pages

enum class Balancer { kOff, kStatic, kOnline };

struct Case {
  std::string name;
  parallel::ParallelSizes sizes;
  bool attention_dp = false;
  Balancer balancer = Balancer::kOff;
  bool max_utilization = false;
  std::string cache_dtype = "AUTO";
  int max_num_tokens = 512;
  int prefill_chunk = 0;
  int cache_pages = 7;  // per rank; the longest request needs 7
};

parallel::ParallelSizes sizes_of(int tp, int pp, int cp) {
  return {.tp = tp, .pp = pp, .cp = cp, .moe_tp = 1, .moe_ep = tp, .moe_cluster = 1};
}

std::vector<Case> cases() {
  const auto on = Balancer::kOnline, fixed = Balancer::kStatic;
  return {
      {.name = "one rank", .sizes = sizes_of(1, 1, 1)},
      {.name = "one rank, chunks of 50",
       .sizes = sizes_of(1, 1, 1),
       .max_num_tokens = 100,
       .prefill_chunk = 50},
      {.name = "one rank, pauses",
       .sizes = sizes_of(1, 1, 1),
       .max_utilization = true,
       .cache_pages = 8},
      {.name = "attention dp 2, online, pauses",
       .sizes = sizes_of(2, 1, 1),
       .attention_dp = true,
       .balancer = on,
       .max_utilization = true,
       .cache_pages = 8},
      {.name = "tp 2, static, pauses",
       .sizes = sizes_of(2, 1, 1),
       .balancer = fixed,
       .max_utilization = true,
       .cache_pages = 8},
      {.name = "pp 2, pauses",
       .sizes = sizes_of(1, 2, 1),
       .max_utilization = true,
       .cache_pages = 8},
      {.name = "pp 2, attention dp 2, online",
       .sizes = sizes_of(2, 2, 1),
       .attention_dp = true,
       .balancer = on,
       .cache_pages = 8},
      {.name = "cp 2, pauses",
       .sizes = sizes_of(1, 1, 2),
       .max_utilization = true,
       .cache_pages = 5},
      {.name = "cp 2, tp 2, static",
       .sizes = sizes_of(2, 1, 2),
       .balancer = fixed,
       .cache_pages = 5},
      {.name = "cp 2, pp 2, chunks of 50",
       .sizes = sizes_of(1, 2, 2),
       .max_num_tokens = 100,
       .prefill_chunk = 50,
       .cache_pages = 5},
      {.name = "fp8 cache, pauses",
       .sizes = sizes_of(1, 1, 1),
       .max_utilization = true,
       .cache_dtype = "FP8",
       .cache_pages = 8},
  };
}

class PrefixReuse : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const bool is_golden = GetParam().find("_plain") != std::string::npos;
    if (is_golden) {
      write_random_model_like(directory_.path(), GetParam());
    } else {
      write_random_model(directory_.path(), {.family = GetParam()});
    }
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
  }

  // Prompts that start with one of a few shared prefixes and end differently. Each comes twice, so
  // that the later ones find pages of the earlier ones.
  static std::vector<std::string> prompts() {
    std::mt19937 rng(11);
    std::vector<std::string> texts = {std::string(140, 'a'), std::string(70, 'a') + "bcd"};
    for (int i = 0; i < 4; ++i) {
      std::string text = texts[rng() % texts.size()];
      for (int more = static_cast<int>(rng() % 60); more > 0 && text.size() < 290; --more) {
        text += static_cast<char>('a' + rng() % 26);
      }
      texts.push_back(text);
    }
    const std::vector<std::string> once(texts.begin() + 2, texts.end());
    texts.insert(texts.end(), once.begin(), once.end());
    return texts;
  }

  GenerateOptions options(const std::string& cache_dtype) const {
    GenerateOptions options;
    options.model_dir = directory_.path();
    options.max_tokens = kMaxTokens;
    options.logits_digest = true;
    options.prompts = prompts();
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    options.parallel.kv_cache_config.dtype = cache_dtype;
    options.parallel.kv_cache_config.enable_block_reuse = false;
    return options;
  }

  GenerateOptions options(const Case& each) const {
    GenerateOptions options = this->options(each.cache_dtype);
    options.parallel.sizes = each.sizes;
    options.parallel.enable_attention_dp = each.attention_dp;
    options.parallel.kv_cache_config.enable_block_reuse = true;
    options.parallel.kv_cache_config.max_tokens = each.cache_pages * kernels::kPageTokens;
    options.parallel.max_num_tokens = each.max_num_tokens;
    options.parallel.max_batch_size = 6;
    options.prefill_chunk = each.prefill_chunk;
    if (each.attention_dp) {
      options.parallel.attention_dp_config = {
          .enable_balance = true, .timeout_iters = 5, .batching_wait_iters = 2};
    }
    if (each.max_utilization) {
      options.parallel.scheduler_config.capacity_scheduler_policy = "MAX_UTILIZATION";
    }
    if (each.balancer == Balancer::kOff) return options;
    const bool online = each.balancer == Balancer::kOnline;
    options.parallel.moe_config.load_balancer = {.num_slots = config_.routing.num_experts + 8,
                                                 .layer_updates_per_iter = online ? 1 : 0};
    if (!online) return options;
    options.adjust_online = [layers = config_.num_moe_layers(),
                             experts = config_.routing.num_experts](run::OnlineParts& parts) {
      parts.make_policy = [=] { return std::make_unique<RestlessPolicy>(layers, experts, 1); };
      parts.plan.balancer.look_interval = std::chrono::microseconds(100);
    };
    return options;
  }

  // Digests of all prompts, and the statistics of the ranks' caches.
  struct Answers {
    std::vector<std::string> digests;
    engine::QueueRecord queue;  // sums over ranks
  };
  static Answers run(const GenerateOptions& options) {
    engine::QueueRecord last;
    const auto report = run::generate(options, [&](const run::Event& event) {
      const auto* each = std::get_if<run::Iteration>(&event);
      if (each == nullptr) return;
      last = {};
      for (const engine::IterationRecord& rank : each->ranks) last += rank.queue;
    });
    EXPECT_TRUE(report.ok()) << report.status().message();
    Answers answers;
    if (!report.ok()) return answers;
    EXPECT_TRUE(report->ended.ok()) << report->ended.message();
    for (const auto& result : report->results) answers.digests.push_back(result.digest);
    answers.queue = last;
    return answers;
  }

  const base::ScratchDirectory directory_;
  model::ModelConfig config_;
};

TEST_P(PrefixReuse, SameBitsAsWithoutSharing) {
  std::map<std::string, std::vector<std::string>> expected;  // by the cache's dtype
  int number = 0;
  for (const Case& each : cases()) {
    if (base::kSanitized && number++ % 2 == 0) continue;
    std::vector<std::string>& wanted = expected[each.cache_dtype];
    if (wanted.empty()) wanted = run(options(each.cache_dtype)).digests;
    ASSERT_EQ(wanted.size(), prompts().size());
    const GenerateOptions with_reuse = options(each);
    if (!model::check_parts(with_reuse.parallel, config_).ok()) continue;  // family_answers_test
    const Answers found = run(with_reuse);
    ASSERT_EQ(found.digests, wanted) << each.name;
    EXPECT_GT(found.queue.reused_tokens, 0) << each.name;
    if (!config_.has_state()) {  // states, not pages, are what such models are short of
      EXPECT_GT(found.queue.evicted_pages, 0) << each.name;
      EXPECT_EQ(found.queue.pauses > 0, each.max_utilization) << each.name;
    }
    fmt::print("  {}: {} tokens reused, {} pages evicted, {} pauses\n", each.name,
               found.queue.reused_tokens, found.queue.evicted_pages, found.queue.pauses);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixReuse,
                         testing::Values("deepseek_v3", "qwen3_moe", "deepseek_v32_plain",
                                         "deepseek_v4_plain", "granitemoehybrid_plain",
                                         "nemotron_h_latent", "lfm2_moe_plain", "qwen3_next_plain",
                                         "gemma4_plain", "kimi_linear_plain", "minimax_m3_plain",
                                         "glm5_next_plain"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace wideep::tests
