// SPDX-License-Identifier: Apache-2.0
//
// Random traffic on rank processes for WIDEEP_SOAK_SECONDS (by default a few seconds), while
// experts move all the time and some copies are corrupted or delayed: the bits of the answers stay
// the same, memory does not grow, and every corrupted copy is detected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "base/scratch_directory.h"
#include "random_model.h"
#include "restless_policy.h"
#include "run/generate.h"
#include "soak.h"

namespace wideep::tests {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes in the sanitizer's heap, if there is one: it keeps freed memory for a while.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

// Memory that this process uses. It grows if a run leaves anything behind in the parent.
int64_t used_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) {
    return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
  }
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

// Generates prompts of one kind per run, and remembers the answer that each got the first time.
class Traffic {
 public:
  explicit Traffic(std::string model_dir) : model_dir_(std::move(model_dir)) {}

  run::GenerateOptions next() {
    run::GenerateOptions options;
    options.model_dir = model_dir_;
    options.logits_digest = true;
    const int ranks = 1 << (1 + rng_() % 3);
    options.parallel = parallel::parallel_config_for_ranks(ranks).value();
    options.parallel.max_num_tokens = 32 + static_cast<int>(rng_() % 64);
    options.parallel.max_batch_size = 1 + static_cast<int>(rng_() % 8);
    options.max_tokens = kMaxTokens;
    const int count = 8 + static_cast<int>(rng_() % 16);
    for (int i = 0; i < count; ++i) {
      options.prompts.push_back(fmt::format("request {:>{}}", rng_() % kKinds, 1 + rng_() % 3));
    }
    return options;
  }

  // The first run with a prompt defines its expected answer.
  void check(const run::GenerateOptions& options, const run::GenerateReport& report) {
    for (size_t i = 0; i < options.prompts.size(); ++i) {
      const auto [answer, first] = answers_.emplace(options.prompts[i], report.results[i].digest);
      ASSERT_EQ(report.results[i].digest, answer->second) << options.prompts[i];
      if (!first) ++compared_;
    }
  }
  int64_t compared() const { return compared_; }

 private:
  static constexpr int kMaxTokens = 60;
  static constexpr int kKinds = 40;
  std::string model_dir_;
  std::mt19937 rng_{5};
  std::map<std::string, std::string> answers_;
  int64_t compared_ = 0;
};

// Of every 50 copies one is corrupted and one is slow.
online::CopyHook troublesome_copies() {
  return [copies = 0](int, int, std::byte* record) mutable {
    ++copies;
    if (copies % 50 == 7) record[3] ^= std::byte{4};
    if (copies % 50 == 31) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
}

TEST(Soak, RandomTrafficWhileExpertsMove) {
  const base::ScratchDirectory directory;
  write_random_model(directory.path(),
                     {.family = "deepseek_v3", .num_layers = 4, .num_predicting = 1});
  Traffic traffic(directory.path());
  const auto end = Clock::now() + std::chrono::duration<double>(soak_seconds());
  int64_t runs = 0, iterations = 0, moves = 0, spoilt = 0, at_rest = 0, bytes_at_start = 0;
  while (Clock::now() < end) {
    run::GenerateOptions options = traffic.next();
    const int k = static_cast<int>(runs % 4);  // 0: static
    recordings::BalancerSettings balancer = {.num_slots = 24, .layer_updates_per_iter = k};
    if (k > 0 && runs % 3 != 0) balancer.exact_load = true;
    options.parallel.moe_config.load_balancer = balancer;
    const bool rests = runs % 7 == 1;  // because the policy's moves do not pay
    options.adjust_online = [&](run::OnlineParts& parts) {
      parts.make_policy = [&, layers = parts.plan.num_layers] {
        return std::make_unique<RestlessPolicy>(layers, 16, k, runs);
      };
      parts.plan.balancer.look_interval = std::chrono::microseconds(100);
      if (rests) parts.plan.policy.horizon_tokens = 20;
      parts.on_copy = troublesome_copies();
    };
    using Type = parallel::SpeculativeConfig::Type;
    if (runs % 5 == 1) {
      options.parallel.speculative_config = {.type = Type::kAuto, .max_draft_len = 8};
    } else if (runs % 5 == 2) {
      options.parallel.speculative_config = {.type = Type::kNgram, .max_draft_len = 4};
    } else if (runs % 5 == 3) {
      options.parallel.speculative_config = {
          .type = Type::kMtp,
          .max_draft_len = 3,
          .max_concurrency = 6,
          .acceptance_window = runs % 2 == 0 ? std::optional<int64_t>() : 4,
          .acceptance_length_threshold = 0.5};
      options.parallel.enable_lm_head_tp_in_adp = true;
    }
    const auto report = run::generate(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    ASSERT_TRUE(report->ended.ok()) << report->ended.message();
    traffic.check(options, *report);
    if (HasFatalFailure()) return;
    iterations += report->load.num_iterations;
    if (report->online) {
      moves += report->online->moves;
      spoilt += report->online->hash_failures;
      EXPECT_EQ(report->online->cancelled, 0);
      if (report->online->resting > 0) ++at_rest;
    }
    if (++runs == 20) bytes_at_start = used_bytes();
  }
  fmt::print(
      "  {} runs, {} iterations, {} moves, {} spoilt copies noticed, {} balancers at rest, {} "
      "answers "
      "compared\n",
      runs, iterations, moves, spoilt, at_rest, traffic.compared());
  EXPECT_GT(moves, 0);
  EXPECT_GT(traffic.compared(), 0);
  if (runs > 100) {
    const int64_t bytes_at_end = used_bytes();
    fmt::print("  memory in use after 20 runs and at the end: {} and {} KiB\n",
               bytes_at_start >> 10, bytes_at_end >> 10);
    EXPECT_LT(bytes_at_end - bytes_at_start, int64_t{4} << 20);
  }
}

}  // namespace
}  // namespace wideep::tests
