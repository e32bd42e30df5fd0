// SPDX-License-Identifier: Apache-2.0
//
// Time and heartbeats are made by hand, in steps of a millisecond: held is who is silent and for
// how long, and that it is said once. Pauses of the service and other members must not look like
// silence. A failure is an alarm without a reason, or balancing that has stopped without a word.
#include "run/background_watch.h"

#include <gtest/gtest.h>

#include "run/online_text.h"

namespace wideep::run {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kLimit = 100 * kMs;

// Of two stages with two ranks each; the first has nothing to balance.
std::vector<OnlineParts> two_stages() {
  balance::ModelPlacement model{.num_slots = 8, .layer_updates_per_iter = 1};
  model.layers[0] = balance::default_placement(8, 2, 8).value();
  const weights::ExpertShape experts{kernels::WeightFormat::kBf16, 64, 64};
  std::vector<OnlineParts> stages(2);
  stages[1] = make_online_parts(plan_online_stage(experts, model, 2, {}).value()).value();
  return stages;
}

class Threads {
 public:
  explicit Threads(online::UpdateBoard& board) : board_(board) { beat(true, {0, 1}); }
  void beat(bool balancer, const std::vector<int>& ranks) {
    ++time_;
    if (balancer) board_.balancer().heartbeat_ns = time_;
    for (const int rank : ranks) board_.updater(rank).heartbeat_ns = time_;
  }

 private:
  online::UpdateBoard& board_;
  int64_t time_ = 1;
};

TEST(BackgroundWatch, TellsOfSilentThreadsAndOfTheirReturn) {
  const std::vector<OnlineParts> stages = two_stages();
  Threads threads(*stages[1].board);
  BackgroundWatch watch(stages, kLimit);
  int64_t now = 0;
  for (; now < 500 * kMs; now += kMs) {
    threads.beat(true, {0, 1});
    EXPECT_FALSE(watch.look(now, 2));
  }
  std::vector<BackgroundSilence> found;
  for (; now < 1000 * kMs; now += kMs) {
    threads.beat(false, {0});
    if (const auto change = watch.look(now, 2)) found.push_back(*change);
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, -1);
  EXPECT_EQ(found[1].rank, 1);
  for (const BackgroundSilence& each : found) {
    EXPECT_EQ(each.stage, 1);
    EXPECT_FALSE(each.is_over);
    EXPECT_NEAR(each.seconds, 0.1, 0.026);  // read every quarter of the limit
  }
  EXPECT_EQ(line_of(found[0], 1)
                .find("online balancing: the balancer's thread has not run for 0 s: experts stay"),
            0u);
  EXPECT_NE(line_of(found[1], 2).find("the copying thread of rank 1 of stage 1"),
            std::string::npos);
  found.clear();
  for (; now < 1500 * kMs; now += kMs) {
    threads.beat(true, {0});
    if (const auto change = watch.look(now, 2)) found.push_back(*change);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].is_over);
  EXPECT_EQ(found[0].rank, -1);
  EXPECT_NEAR(found[0].seconds, 0.5, 0.1);
}

// Without iterations nobody looks, which is not the threads' fault.
TEST(BackgroundWatch, PausesOfTheServiceAreNoSilence) {
  const std::vector<OnlineParts> stages = two_stages();
  Threads threads(*stages[1].board);
  BackgroundWatch watch(stages, kLimit);
  EXPECT_FALSE(watch.look(0, 2));
  threads.beat(true, {0, 1});
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.look(3600'000 * kMs, 2));
}

TEST(BackgroundWatch, OtherMembersBeginAnew) {
  const std::vector<OnlineParts> stages = two_stages();
  Threads threads(*stages[1].board);
  BackgroundWatch watch(stages, kLimit);
  EXPECT_FALSE(watch.look(0, 2));
  watch.restart();
  for (int64_t now = 90 * kMs; now < 180 * kMs; now += kMs) EXPECT_FALSE(watch.look(now, 1));
  int silent = 0;
  for (int64_t now = 180 * kMs; now < 400 * kMs; now += kMs) silent += watch.look(now, 1) ? 1 : 0;
  EXPECT_EQ(silent, 2);  // the balancer and the only rank
}

TEST(BackgroundWatch, WithoutOnlineBalancingThereIsNothingToSee) {
  BackgroundWatch watch({}, kLimit);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.look(i * kLimit, 4));
}

}  // namespace
}  // namespace wideep::run
