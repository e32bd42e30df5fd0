// SPDX-License-Identifier: Apache-2.0
//
// Online balancing in whole runs: experts move between the slots of rank processes while they
// generate, and no bit of any answer changes. Every test counts the moves: without moves it would
// prove nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "base/proc_file.h"
#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "base/stopped_threads.h"
#include "generated.h"
#include "random_model.h"
#include "restless_policy.h"

namespace wideep::tests {
namespace {

using run::GenerateOptions;
using run::GenerateReport;

constexpr int kExperts = 16;
constexpr int kSlots = 24;
constexpr int kMaxRuns = 40;  // until experts have moved: on a busy machine threads may not run

struct Model {
  const char* name;
  std::string family;
  int moe_layers;
};

GenerateOptions options_for(const std::string& directory, int ranks, int max_tokens) {
  GenerateOptions options;
  options.model_dir = directory;
  options.max_tokens = max_tokens;
  options.logits_digest = true;
  options.parallel = parallel::parallel_config_for_ranks(ranks).value();
  options.parallel.max_batch_size = 1;  // one prompt at a time per rank, for many iterations
  for (int i = 0; i < 10; ++i) {
    options.prompts.push_back(fmt::format("{} prompt of its own kind {}", i, i * i));
  }
  return options;
}

// layer_updates: 0 for static.
void balance(GenerateOptions& options, int layer_updates) {
  options.parallel.moe_config.load_balancer = {.num_slots = kSlots,
                                               .layer_updates_per_iter = layer_updates};
}

// more: what else the test changes.
void make_restless(GenerateOptions& options, const Model& model, int layer_updates,
                   std::function<void(run::OnlineParts&)> more = {}) {
  options.adjust_online = [=](run::OnlineParts& parts) {
    parts.make_policy = [=] {
      return std::make_unique<RestlessPolicy>(model.moe_layers, kExperts, layer_updates);
    };
    parts.plan.balancer.look_interval = std::chrono::microseconds(100);
    if (more) more(parts);
  };
}

struct Moved {
  int64_t iterations = 0;
  int64_t moves = 0;
  int64_t updates = 0;
  int64_t cancelled = 0;
  size_t rebalances = 0;  // in the reports of all runs
};

// Every rebalance tells when each of its layers went over to new slots.
void expect_switches(const run::Rebalance& rebalance) {
  int64_t moves = 0, last = 0;
  for (const online::LayerSwitch& each : rebalance.switches) {
    EXPECT_GT(each.iteration, rebalance.decided);
    moves += each.moves;
    last = std::max(last, each.iteration);
  }
  EXPECT_EQ(moves, rebalance.moves);
  EXPECT_GE(rebalance.iteration, last);
  EXPECT_GE(rebalance.switches.size(), static_cast<size_t>(rebalance.layers));
}

// The number of moves in a run depends on how busy the machine is, so this runs again until `moves`
// are reached and a decision has ended, and compares every answer of every run with the expected
// one.
Moved run_until_moved(const GenerateOptions& options, int64_t moves,
                      const std::vector<std::string>& expected) {
  Moved moved;
  for (int i = 0; i < kMaxRuns && (moved.moves < moves || moved.rebalances == 0); ++i) {
    const GenerateReport report = run(options);
    EXPECT_EQ(digests(report), expected);
    EXPECT_TRUE(report.online);
    if (testing::Test::HasFailure()) return moved;
    EXPECT_EQ(report.online->hash_failures, 0);
    moved.cancelled += report.online->cancelled;
    moved.iterations += report.load.num_iterations;
    moved.moves += report.online->moves;
    moved.updates += report.online->published;
    moved.rebalances += report.rebalances.size();
    for (const run::Rebalance& each : report.rebalances) expect_switches(each);
  }
  EXPECT_GE(moved.moves, moves);
  EXPECT_GT(moved.rebalances, 0u);
  return moved;
}

class Online : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override { write_random_model(directory_.path(), {.family = GetParam().family}); }
  const base::ScratchDirectory directory_;
};

// 10 prompts one after the other on 2 ranks: up to 5 × 500 iterations, fewer if a text ends early.
TEST_P(Online, AnswersAreTheSameBitsWhileExpertsMove) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 500);
  const std::vector<std::string> expected = digests(run(options));
  balance(options, 0);
  EXPECT_EQ(digests(run(options)), expected) << "static";
  for (const int k : {1, 2, model.moe_layers}) {
    balance(options, k);
    make_restless(options, model, k);
    const Moved moved = run_until_moved(options, 500, expected);
    EXPECT_GE(moved.iterations, 1000);
    EXPECT_EQ(moved.cancelled, 0);
    fmt::print("  {} k {}: {} iterations, {} moves in {} layer updates, all equal\n", model.name, k,
               moved.iterations, moved.moves, moved.updates);
  }
}

// Ranks share each batch: every rank computes a part of its heads and columns.
// Ranks also borrow experts from the pool in prefill, and the rows are even whatever the placement.
TEST_P(Online, RowsAreSharedOutExactly) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 4, 24);
  options.prompts.clear();
  for (int i = 0; i < 8; ++i) {
    std::string prompt;
    for (int word = 0; word < 200; ++word) prompt += fmt::format("{} ", i * word % 7);
    options.prompts.push_back(prompt);
  }
  const std::vector<std::string> expected = digests(run(options));
  balance(options, model.moe_layers);
  options.parallel.moe_config.load_balancer->exact_load = true;
  make_restless(options, model, model.moe_layers);
  EXPECT_EQ(digests(run(options)), expected);
  options.parallel.moe_config.max_num_tokens = 300;  // several chunks
  EXPECT_EQ(digests(run(options)), expected);
}

// The moves in the routing log, for its pictures; and the load of experts as events, for those of
// the dashboard, a few times a second: all but what came since the last one.
TEST_P(Online, TheRoutingLogHasTheMovesAndEventsHaveTheLoad) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 500);
  balance(options, 2);
  make_restless(options, model, 2);
  options.routing_log = run::RoutingLogRequest();
  options.expert_load = true;
  std::vector<int64_t> reported;
  size_t moved_layers = 0;
  for (int i = 0; i < kMaxRuns && (moved_layers == 0 || reported.empty()); ++i) {
    reported.clear();
    const auto report = run::generate(options, [&](const run::Event& event) {
      const auto* each = std::get_if<run::ExpertLoad>(&event);
      if (each == nullptr) return;
      EXPECT_EQ(each->first_layer, 0);
      reported.resize(each->counts.size());
      std::ranges::transform(reported, each->counts, reported.begin(), std::plus<>());
    });
    ASSERT_TRUE(report.ok()) << report.status().message();
    ASSERT_TRUE(report->routing_log);
    const recordings::RoutingLog& log = *report->routing_log;
    EXPECT_TRUE(recordings::check_routing_log(log).ok())
        << recordings::check_routing_log(log).message();
    moved_layers = log.layer_updates.size();
    ASSERT_EQ(reported.size() % log.layers.size(), 0u);
    for (size_t at = 0; at < reported.size(); ++at) {
      const size_t layer = at / kExperts, expert = at % kExperts;
      int64_t all = 0;
      for (const auto& iteration : log.iterations) {
        for (const auto& rank : iteration.counts[layer]) all += rank[expert];
      }
      EXPECT_LE(reported[at], all);
    }
  }
  EXPECT_GT(moved_layers, 0u);
  EXPECT_GT(std::accumulate(reported.begin(), reported.end(), int64_t{0}), 0);
}

TEST_P(Online, RanksShareBatches) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 60);
  const std::vector<std::string> expected = digests(run(options));
  options.parallel.enable_attention_dp = false;
  balance(options, 2);
  make_restless(options, model, 2);
  run_until_moved(options, 50, expected);
}

// Each stage of a pipeline has a balancer of its own.
TEST_P(Online, StagesOfAPipeline) {
  GenerateOptions options = options_for(directory_.path(), 2, 60);
  const std::vector<std::string> expected = digests(run(options));
  options.parallel.sizes.pp = 2;
  balance(options, 1);
  options.adjust_online = [](run::OnlineParts& parts) {
    const int layers = parts.board->shape().num_layers;
    parts.make_policy = [layers] { return std::make_unique<RestlessPolicy>(layers, kExperts, 1); };
    parts.plan.balancer.look_interval = std::chrono::microseconds(100);
  };
  run_until_moved(options, 50, expected);
}

TEST_P(Online, ManyRanksAndOneSpareRecordEach) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 8, 100);
  const std::vector<std::string> expected = digests(run(options));
  balance(options, 2);
  make_restless(options, model, 2,
                [](run::OnlineParts& parts) { parts.plan.balancer.num_spares = 1; });
  run_until_moved(options, 20, expected);
}

// The events that the parent receives from a run in which all threads of the balancer are stopped
// for a while.
class SuspendedBalancer {
 public:
  SuspendedBalancer(int64_t first, int64_t last) : first_(first), last_(last) {}

  void iteration(int rank, int64_t number) {
    if (rank != 0) return;
    if (number == first_) {
      const std::vector<pid_t> threads = base::threads_of_children("wideep-");
      num_threads_ = static_cast<int>(threads.size());
      permitted_ = stopped_.stop(threads);
      moves_at_stop_ = board_->balancer().moves;
    } else if (number == last_) {
      moves_at_end_ = board_->balancer().moves;
      stopped_.resume();
    }
  }
  void watch(const online::UpdateBoard* board) { board_ = board; }

  bool permitted() const { return permitted_; }
  int num_threads() const { return num_threads_; }
  int64_t moves_while_stopped() const { return moves_at_end_ - moves_at_stop_; }

 private:
  int64_t first_, last_;
  const online::UpdateBoard* board_ = nullptr;
  base::StoppedThreads stopped_;
  bool permitted_ = false;
  int num_threads_ = 0;
  int64_t moves_at_stop_ = 0, moves_at_end_ = 0;
};

// The threads are stopped in the middle of a copy or a plan and do not run for a thousand
// iterations: the forward path must not wait for them.
TEST_P(Online, IterationsGoOnWhileTheBalancersThreadsAreStopped) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 500);
  const std::vector<std::string> expected = digests(run(options));
  balance(options, 2);
  make_restless(options, model, 2);
  const auto adjust = options.adjust_online;
  int64_t moves = 0;
  for (int i = 0; i < kMaxRuns && moves == 0; ++i) {
    SuspendedBalancer suspended(300, 1300);
    options.adjust_online = [&](run::OnlineParts& parts) {
      adjust(parts);
      suspended.watch(parts.board.get());
    };
    const auto report = run::generate(options, [&](const run::Event& event) {
      const auto* each = std::get_if<run::Iteration>(&event);
      if (each == nullptr) return;
      for (int rank = 0; rank < 2; ++rank) suspended.iteration(rank, each->ranks[0].iteration);
    });
    ASSERT_TRUE(report.ok()) << report.status().message();
    if (!suspended.permitted()) GTEST_SKIP() << "this system does not let a parent stop threads";
    EXPECT_EQ(digests(*report), expected);
    EXPECT_EQ(suspended.num_threads(), 5);  // two updaters, who lends to each, one balancer
    EXPECT_EQ(suspended.moves_while_stopped(), 0);
    EXPECT_GT(report->load.num_iterations, 1300);
    moves = report->online->moves;
  }
  EXPECT_GT(moves, 0);
}

// Shuffling experts cannot pay for itself.
TEST_P(Online, ABalancerWhoseMovesDoNotPayRests) {
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 500);
  const std::vector<std::string> expected = digests(run(options));
  balance(options, 2);
  make_restless(options, model, 2,
                [](run::OnlineParts& parts) { parts.plan.policy.horizon_tokens = 20; });
  std::vector<run::TrustChange> changes;
  int64_t moved_at_rest = 0, moves = 0;
  for (int i = 0; i < kMaxRuns && changes.size() < 2; ++i) {
    moves = 0;
    changes.clear();
    const auto report = run::generate(options, [&](const run::Event& event) {
      if (const auto* each = std::get_if<run::Rebalance>(&event)) {
        moves += each->moves;
        // What was under way when it began to rest may end.
        if (!changes.empty() && changes.back().verdict.rests) moved_at_rest += each->moves;
      }
      if (const auto* each = std::get_if<run::TrustChange>(&event)) changes.push_back(*each);
    });
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(digests(*report), expected);
  }
  ASSERT_GE(changes.size(), 2u);
  for (size_t i = 0; i < changes.size(); ++i) EXPECT_EQ(changes[i].verdict.rests, i % 2 == 0) << i;
  EXPECT_LE(changes[0].verdict.sums.net_seconds(), 0.0);
  EXPECT_EQ(changes[0].verdict.rest_tokens, 4 * 20);
  EXPECT_GE(changes[1].iteration, changes[0].iteration + 30);  // at most two tokens in each
  EXPECT_LT(moved_at_rest, moves);
}

// With every format of weights that has its own kind of record, and with dispatch in small chunks.
TEST_P(Online, CodedWeightsAndChunkedDispatch) {
  const Model& model = GetParam();
  for (const auto format : {kernels::WeightFormat::kFp8, kernels::WeightFormat::kNvfp4}) {
    GenerateOptions options = options_for(directory_.path(), 4, 60);
    options.format = format;
    const std::vector<std::string> expected = digests(run(options));
    options.parallel.moe_config.max_num_tokens = 8;
    options.parallel.max_batch_size = 3;
    options.prefill_chunk = 7;
    balance(options, 2);
    make_restless(options, model, 2);
    run_until_moved(options, 20, expected);
  }
}

int64_t private_bytes_of_children() {
  uint64_t kib = 0;
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::gettid()));
  for (pid_t child; children >> child;) {
    kib += base::read_field(fmt::format("/proc/{}/status", child), "RssAnon").value_or(0);
  }
  return static_cast<int64_t>(kib << 10);
}

TEST_P(Online, RanksKeepNothingOfWhatHasMoved) {
  if (base::kSanitized) GTEST_SKIP() << "the sanitizer has memory of its own";
  const Model& model = GetParam();
  GenerateOptions options = options_for(directory_.path(), 2, 500);
  balance(options, 2);
  make_restless(options, model, 2);
  int64_t moves = 0;
  for (int i = 0; i < kMaxRuns && moves == 0; ++i) {
    int64_t first = 0, last = 0;
    const auto report = run::generate(options, [&](const run::Event& event) {
      const auto* each = std::get_if<run::Iteration>(&event);
      if (each == nullptr) return;
      const int64_t iteration = each->ranks[0].iteration;
      if (iteration == 500) first = private_bytes_of_children();
      if (iteration == 1300) last = private_bytes_of_children();
    });
    ASSERT_TRUE(report.ok()) << report.status().message();
    moves = report->online->moves;
    EXPECT_GT(first, 0);
    EXPECT_LT(last - first, int64_t{1} << 20) << "of " << first;
  }
  EXPECT_GT(moves, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Online,
                         testing::Values(Model{"deepseek", "deepseek_v3", 2},
                                         Model{"qwen3", "qwen3_moe", 3}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace wideep::tests
