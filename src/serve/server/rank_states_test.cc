// SPDX-License-Identifier: Apache-2.0
//
// Ranks die, return, join and retire in made-up events; held are their states, the counters and the
// line that says why the service is degraded. A failure would report a scaling that was asked for
// as a fault, or hide a death.
#include "server/rank_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wideep::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

run::RankDied killed(int rank, int moved = 0) {
  return {.rank = rank, .how = "rank " + std::to_string(rank) + " was killed", .moved = moved};
}
run::MembersChanged members(uint32_t epoch, std::vector<int> ranks) {
  return {.epoch = epoch, .ranks = std::move(ranks)};
}

TEST(RankStates, FollowARankThatDiesAndReturns) {
  RankStates ranks(3, 3);
  EXPECT_EQ(ranks.degraded(), "");
  ranks.died(killed(1, 2), 100.0);
  EXPECT_EQ(ranks.degraded(), "rank 1 does not compute");
  ranks.changed(members(2, {0, 2}), 100.5);
  EXPECT_EQ(ranks.json()["states"], json({"active", "dead", "active"}));
  ranks.started({1});
  EXPECT_EQ(ranks.json()["states"], json({"active", "starting", "active"}));
  EXPECT_EQ(ranks.degraded(), "rank 1 does not compute (1 start again)");
  ranks.changed(members(3, {0, 1, 2}), 101.0);
  EXPECT_EQ(ranks.degraded(), "");
  const std::string metrics = ranks.metrics();
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_active_ranks 3\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_wanted_ranks 3\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_failed_ranks_total 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_member_changes_total 2\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_recoveries_total 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_longest_recovery_seconds 0.5\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_requests_replayed_total 2\n"));
}

TEST(RankStates, TheMemoryOfADeadRankIsGone) {
  RankStates ranks(2, 2);
  ranks.memory({.rank = 0, .resident_bytes = 100});
  ranks.memory({.rank = 1, .resident_bytes = 200});
  EXPECT_THAT(ranks.metrics(),
              HasSubstr("\nwideep_rank_resident_memory_bytes{ep_rank=\"1\"} 200\n"));
  ranks.died(killed(1), 1.0);
  EXPECT_THAT(ranks.metrics(), HasSubstr("\nwideep_ep_active_ranks 1\n"));
  EXPECT_THAT(ranks.metrics(), HasSubstr("\nwideep_ep_wanted_ranks 2\n"));
  EXPECT_THAT(ranks.metrics(),
              HasSubstr("\nwideep_rank_resident_memory_bytes{ep_rank=\"0\"} 100\n"));
  EXPECT_THAT(ranks.metrics(), Not(HasSubstr("memory_bytes{ep_rank=\"1\"}")));
}

TEST(RankStates, GrowingIsNotDegradedAndShrinkingNeither) {
  RankStates ranks(4, 2);
  bool is_done = false;
  ranks.want(4, [&] { is_done = true; });
  EXPECT_TRUE(ranks.is_changing());
  ranks.started({2});
  ranks.started({3});
  EXPECT_EQ(ranks.json()["states"], json({"active", "active", "starting", "starting"}));
  EXPECT_EQ(ranks.degraded(), "");
  ranks.changed(members(2, {0, 1, 2, 3}), 1.0);
  EXPECT_TRUE(is_done);
  ranks.died(killed(3), 2.0);
  EXPECT_EQ(ranks.degraded(), "rank 3 does not compute");  // it belongs to the service now
  ranks.want(1, nullptr);
  EXPECT_EQ(ranks.degraded(), "");
  ranks.changed(members(3, {0}), 3.0);
  EXPECT_EQ(ranks.json()["states"], json({"active", "retired", "retired", "dead"}));
  EXPECT_EQ(ranks.json()["wanted"], 1);
}

// A node is lost, then its ranks are no longer wanted: no change of members follows, as there is
// nothing to change.
TEST(RankStates, WithoutTheDeadThoseThatAreLeftComputeAlone) {
  RankStates ranks(4, 4);
  EXPECT_TRUE(ranks.compute_alone(4));
  ranks.died(killed(2), 1.0);
  ranks.died(killed(3), 1.0);
  ranks.changed(members(2, {0, 1}), 1.1);
  EXPECT_TRUE(ranks.compute_alone(2));
  EXPECT_FALSE(ranks.compute_alone(1));
  EXPECT_FALSE(ranks.compute_alone(3));
  ranks.want(2, nullptr);
  EXPECT_FALSE(ranks.is_changing());
  EXPECT_EQ(ranks.degraded(), "");
}

// It has seen nothing of what went before, for example that fewer ranks are wanted.
TEST(RankStates, AnotherServingProcessKnowsHowManyAreWanted) {
  RankStates ranks(4, 4);
  ranks.begin_again(2, 3, 5.0);
  EXPECT_EQ(ranks.wanted(), 3);
  EXPECT_THAT(ranks.metrics(), HasSubstr("\nwideep_ep_active_ranks 0\n"));
  EXPECT_THAT(ranks.metrics(), HasSubstr("\nwideep_serving_processes_died_total 2\n"));
  ranks.changed(members(9, {0, 2}), 5.1);
  EXPECT_FALSE(ranks.compute_alone(3));
  EXPECT_EQ(ranks.json()["states"], json({"active", "starting", "active", "retired"}));
  EXPECT_THAT(ranks.degraded(), HasSubstr("rank 1 "));
  ranks.changed(members(10, {0, 1, 2}), 5.2);
  EXPECT_TRUE(ranks.compute_alone(3));
  EXPECT_FALSE(ranks.compute_alone(2));  // one too many
  EXPECT_FALSE(ranks.compute_alone(4));
  EXPECT_EQ(ranks.degraded(), "");
  EXPECT_THAT(ranks.json()["events"].dump(), HasSubstr("the serving process has died"));
}

TEST(RankStates, KeepsTheLatestEvents) {
  RankStates ranks(2, 2);
  for (int i = 0; i < 50; ++i) ranks.changed(members(2, {0, 1}), i);
  const json events = ranks.json()["events"];
  EXPECT_EQ(events.size(), 20u);
  EXPECT_EQ(events.back()["time"], 49.0);
}

TEST(RankStates, LinesForPeople) {
  EXPECT_EQ(line_of(killed(1)), "rank 1 was killed");
  EXPECT_EQ(line_of(killed(1, 1)), "rank 1 was killed; 1 request goes on elsewhere");
  EXPECT_EQ(line_of(killed(1, 2)), "rank 1 was killed; 2 requests go on elsewhere");
  run::RankDied suspect = killed(1);
  suspect.failed = {7};
  EXPECT_THAT(line_of(suspect), HasSubstr("; 1 request failed"));
  run::MembersChanged change = members(2, {0});
  EXPECT_EQ(line_of(change, 2), "1 of 2 ranks compute");
  change.reloaded = 1;
  change.replayed = 2;
  EXPECT_EQ(line_of(change, 2), "1 of 2 ranks compute; 1 expert reloaded; 2 requests replayed");
}

// Ranks that were asked to end have not died.
TEST(RankStates, ARankThatIsNotWantedRetires) {
  RankStates ranks(2, 2);
  ranks.want(1, nullptr);
  run::RankDied ended = killed(1);
  ended.was_expected = true;
  ranks.died(ended, 1.0);
  EXPECT_EQ(ranks.json()["states"], json({"active", "retired"}));
  EXPECT_EQ(ranks.json()["events"], json::array());
  EXPECT_THAT(ranks.metrics(), Not(HasSubstr("wideep_ep_failed_ranks_total 1")));
}

}  // namespace
}  // namespace wideep::server
