// SPDX-License-Identifier: Apache-2.0
//
// Every background thread of online balancing is stopped, starved of processor time, or given
// nonsense, while the ranks generate. Iterations go on, no bit of any answer changes, and it is
// told.
//
//                  stopped           starved                 spoilt
//   balancer       a signal          plans that take long    plans that are no placements
//   copier         a signal          copies that take long   copies with wrong bytes
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>

#include "base/scratch_directory.h"
#include "base/stopped_threads.h"
#include "generated.h"
#include "random_model.h"
#include "restless_policy.h"

namespace wideep::tests {
namespace {

using run::BackgroundSilence;
using run::GenerateOptions;
using run::GenerateReport;

constexpr int kExperts = 16;
constexpr int kLayers = 3;  // MoE layers of the model below
constexpr int kRanks = 2;

// What a run's background threads do.
struct Threads {
  std::function<std::unique_ptr<online::UpdatePolicy>()> make_policy = [] {
    return std::make_unique<RestlessPolicy>(kLayers, kExperts, 2);
  };
  online::CopyHook on_copy = {};
};

class BackgroundThreads : public testing::Test {
 protected:
  BackgroundThreads() {
    write_random_model(directory_.path(), {.family = "qwen3_moe"});
    options_.model_dir = directory_.path();
    options_.max_tokens = 500;
    options_.logits_digest = true;
    options_.parallel = parallel::parallel_config_for_ranks(kRanks).value();
    options_.parallel.max_batch_size = 1;  // many iterations
    for (int i = 0; i < 10; ++i) options_.prompts.push_back(fmt::format("prompt {}", i * i));
    expected_ = digests(run(options_));
    options_.parallel.moe_config.load_balancer = {.num_slots = 24, .layer_updates_per_iter = 2};
  }

  // on_event: called with each event.
  GenerateReport run_with(const Threads& threads,
                          const std::function<void(const run::Event&)>& on_event = {}) {
    GenerateOptions options = options_;
    options.adjust_online = [&](run::OnlineParts& parts) {
      parts.make_policy = threads.make_policy;
      parts.on_copy = threads.on_copy;
      parts.plan.balancer.look_interval = std::chrono::microseconds(100);
      board_ = parts.board.get();
    };
    auto report = run::generate(options, [&](const run::Event& event) {
      if (const auto* each = std::get_if<run::Iteration>(&event)) {
        iteration_ = each->ranks[0].iteration;
      }
      if (const auto* each = std::get_if<BackgroundSilence>(&event)) silences_.push_back(*each);
      if (on_event) on_event(event);
    });
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(digests(*report), expected_);
    return std::move(*report);
  }

  const base::ScratchDirectory directory_;
  GenerateOptions options_;
  std::vector<std::string> expected_;
  const online::UpdateBoard* board_ = nullptr;
  int64_t iteration_ = 0;
  std::vector<BackgroundSilence> silences_;
};

TEST_F(BackgroundThreads, StoppedOnesAreTold) {
  options_.background_limit = std::chrono::milliseconds(60);
  base::StoppedThreads stopped;
  std::vector<pid_t> threads;
  bool permitted = false;
  // Resumed when all have been missed, or after many iterations.
  std::map<int, int> missed, back;  // by rank; −1: the balancer
  run_with({}, [&](const run::Event& event) {
    if (const auto* each = std::get_if<BackgroundSilence>(&event)) {
      ++(each->is_over ? back : missed)[each->rank];
    }
    if (iteration_ == 300 && threads.empty()) {
      threads = base::threads_of_children("wideep-");
      permitted = stopped.stop(threads);
    }
    if (missed.size() == 3 || iteration_ == 4000) stopped.resume();
  });
  if (!permitted) GTEST_SKIP() << "this system does not let a parent stop threads";
  EXPECT_EQ(threads.size(), 1u + 2 * kRanks);  // each rank has one that lends priority besides
  for (int thread = -1; thread < kRanks; ++thread) {
    EXPECT_GE(missed[thread], 1) << thread;
    EXPECT_GE(back[thread], 1) << thread;
  }
}

// Takes so long to plan.
class SlowPolicy : public RestlessPolicy {
 public:
  SlowPolicy() : RestlessPolicy(kLayers, kExperts, 2) {}
  std::span<const online::LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                                     std::span<const uint8_t> busy) override {
    ::usleep(50'000);
    return RestlessPolicy::end_iteration(placements, busy);
  }
};

TEST_F(BackgroundThreads, StarvedOnesDelayNothing) {
  const auto duration = [&](const Threads& threads) {
    const GenerateReport report = run_with(threads);
    EXPECT_GT(report.load.num_iterations, 2000);
    return report.wall_seconds;
  };
  const double usual = duration({});
  // Each plan and each copy takes longer than an iteration a hundred times over.
  const double slow_plans =
      duration({.make_policy = [] { return std::make_unique<SlowPolicy>(); }});
  const double slow_copies = duration({.on_copy = [](int, int, std::byte*) { ::usleep(50'000); }});
  // 2,500 iterations that waited would take 125 s. The machine may be busy with other things.
  EXPECT_LT(slow_plans, 10 * usual + 20);
  EXPECT_LT(slow_copies, 10 * usual + 20);
  EXPECT_TRUE(silences_.empty());  // in less than 10 s
}

// Returns nonsense of every kind, and sometimes a placement.
class SpoiltPolicy : public RestlessPolicy {
 public:
  SpoiltPolicy() : RestlessPolicy(kLayers, kExperts, kLayers) {}
  std::span<const online::LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                                     std::span<const uint8_t> busy) override {
    const auto updates = RestlessPolicy::end_iteration(placements, busy);
    updates_.assign(updates.begin(), updates.end());
    for (online::LayerUpdate& update : updates_) spoil(update);
    if (!updates_.empty()) updates_.push_back(updates_.front());  // the same layer twice
    return updates_;
  }

 private:
  void spoil(online::LayerUpdate& update) {
    std::vector<int32_t>& slots = update.plan.placement.slot_to_expert;
    switch (count_++ % 9) {
      case 0:
        return std::replace(slots.begin(), slots.end(), 3, 4);  // an expert without a slot
      case 1:
        slots[5] = kExperts;
        return;
      case 2:
        slots[5] = -7;
        return;
      case 3:
        slots.pop_back();
        return;
      case 4:
        update.layer_idx = kLayers;
        return;
      case 5:
        update.layer_idx = -1;
        return;
      case 6:
        update.plan.shares.assign(slots.size(), std::nan(""));
        return;
      case 7:
        update.plan.placement.ep_size = 3;
        return;
      default:
        return;  // as it was
    }
  }
  int count_ = 0;
  std::vector<online::LayerUpdate> updates_;
};

TEST_F(BackgroundThreads, SpoiltPlansAreRefused) {
  int64_t refused = 0, moves = 0;
  for (int i = 0; i < 40 && (moves == 0 || refused < 20); ++i) {
    const GenerateReport report =
        run_with({.make_policy = [] { return std::make_unique<SpoiltPolicy>(); }});
    ASSERT_FALSE(HasFailure());
    refused += report.online->refused;
    moves += report.online->moves;
  }
  EXPECT_GE(refused, 20);
  EXPECT_GT(moves, 0);  // the sound ones among them
}

TEST_F(BackgroundThreads, SpoiltCopiesAreNotServed) {
  int64_t wrong = 0, cancelled = 0;
  for (int i = 0; i < 40 && cancelled == 0; ++i) {
    const GenerateReport report =
        run_with({.on_copy = [](int, int, std::byte* record) { record[11] ^= std::byte{0x40}; }});
    ASSERT_FALSE(HasFailure());
    wrong += report.online->hash_failures;
    cancelled += report.online->cancelled;
    EXPECT_EQ(report.online->moves, 0);
  }
  EXPECT_GT(wrong, 0);
  EXPECT_GT(cancelled, 0);
}

}  // namespace
}  // namespace wideep::tests
