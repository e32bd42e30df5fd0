// SPDX-License-Identifier: Apache-2.0
//
// Decisions by hand, then four schedulers in step, as the engine runs them, over 3,000 iterations
// of random requests: with the gate the imbalance of prompt tokens must be below 0.6 of that
// without, and no prompt may wait beyond the limit. The figures are printed, because they are what
// the gate is for. A failure is ranks that idle for one that computes a prompt, or a prompt that
// waits for all ranks.
#include "schedule/prompt_gate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "schedule/layout_testing.h"
#include "schedule/scheduler.h"

namespace wideep::engine {
namespace {

constexpr RankReadiness kBusy{.has_prompts = false, .generates = true};
constexpr RankReadiness kReady{.has_prompts = true, .generates = true};
constexpr RankReadiness kFull{.has_prompts = true, .generates = true, .has_room = false};

using Ranks = std::vector<RankReadiness>;

TEST(PromptGate, IsOpenWithoutBalance) {
  PromptGate gate({});
  EXPECT_TRUE(gate.open(Ranks{kReady, kBusy}));
}

TEST(PromptGate, IsOpenWhileARankHasNothingToGenerate) {
  PromptGate gate({.enabled = true});
  EXPECT_TRUE(gate.open(Ranks{kReady, {}}));
  EXPECT_TRUE(gate.open(Ranks{kReady, {.has_prompts = true}}));
}

TEST(PromptGate, WaitsForAllRanksThenForMorePromptsAndNeverTooLong) {
  PromptGate gate({.enabled = true, .timeout_iters = 5, .batching_wait_iters = 2});
  EXPECT_FALSE(gate.open(Ranks{kReady, kBusy}));
  EXPECT_FALSE(gate.open(Ranks{kReady, kReady}));
  EXPECT_FALSE(gate.open(Ranks{kReady, kReady}));
  EXPECT_TRUE(gate.open(Ranks{kReady, kReady}));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(gate.open(Ranks{kBusy, kBusy}));  // nobody is held
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(gate.open(Ranks{kReady, kFull}));
  EXPECT_TRUE(gate.open(Ranks{kReady, kFull}));
}

TEST(PromptGate, WaitsOfZeroIterationsAreNone) {
  PromptGate now({.enabled = true, .timeout_iters = 0});
  EXPECT_TRUE(now.open(Ranks{kReady, kBusy}));
  PromptGate at_once({.enabled = true, .timeout_iters = 5, .batching_wait_iters = 0});
  EXPECT_TRUE(at_once.open(Ranks{kReady, kReady}));
}

// ---- ranks with schedulers, in step as the engine runs them ----

struct Load {
  double imbalance = 0.0;  // of prompt tokens: the fullest rank's share above the mean
  int longest_wait = 0;    // iterations from the request to its first token computed
};

// Requests of mixed lengths that arrive at random, to the ranks in turn; outputs are long enough
// that all ranks generate.
Load serve(const PromptBalance& balance) {
  constexpr int kRanks = 4, kIterations = 3000;
  std::deque<Scheduler> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(
        small_layout(),
        SchedulerLimits{.max_batch_size = 64, .max_num_tokens = 512, .max_pages = 4000});
  }
  PromptGate gate(balance);
  std::mt19937 rng(3);
  std::map<int, int> arrived;
  Load load;
  double max = 0.0, mean = 0.0;
  for (int iteration = 0, index = 0; iteration < kIterations; ++iteration) {
    for (; rng() % 100 < 25; ++index) {  // one in three iterations
      const int length = 20 + static_cast<int>(rng() % (rng() % 4 == 0 ? 480 : 100));
      EXPECT_TRUE(ranks[index % kRanks]
                      .submit({.index = index,
                               .prompt = std::vector<int32_t>(static_cast<size_t>(length), 1),
                               .max_tokens = 100 + static_cast<int>(rng() % 200)})
                      .ok());
      arrived[index] = iteration;
    }
    std::vector<int> prompt_tokens;
    Ranks readiness;
    for (Scheduler& rank : ranks) {
      const Scheduler::Step& step = rank.schedule();
      for (const Sequence* owner : step.owners) {
        const auto found = arrived.find(owner->request.index);
        if (found == arrived.end()) continue;
        load.longest_wait = std::max(load.longest_wait, iteration - found->second);
        arrived.erase(found);
      }
      prompt_tokens.push_back(step.prompt_tokens);
      readiness.push_back(rank.readiness());
      for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
        sequence->tokens.push_back(99);
        if (sequence->num_generated() == sequence->request.max_tokens) rank.finish(sequence);
      }
    }
    const bool open = gate.open(readiness);
    for (Scheduler& rank : ranks) rank.hold_new_prompts(!open);
    max += *std::ranges::max_element(prompt_tokens);
    mean += std::accumulate(prompt_tokens.begin(), prompt_tokens.end(), 0.0) / kRanks;
  }
  load.imbalance = (max - mean) / mean;
  return load;
}

TEST(PromptGate, PromptsOfAllRanksShareIterationsAndNoneWaitsLonger) {
  const Load without = serve({});
  for (const int timeout : {10, 50}) {
    const Load with = serve({.enabled = true, .timeout_iters = timeout, .batching_wait_iters = 5});
    EXPECT_LT(with.imbalance, 0.6 * without.imbalance) << timeout;
    EXPECT_LE(with.longest_wait, timeout + 1) << timeout;  // the gate hears of it an iteration late
    fmt::print(
        "  timeout {}: imbalance of prompt tokens {:.2f} (without: {:.2f}), longest wait {}\n",
        timeout, with.imbalance, without.imbalance, with.longest_wait);
  }
  EXPECT_LE(without.longest_wait, 1);
}

}  // namespace
}  // namespace wideep::engine
