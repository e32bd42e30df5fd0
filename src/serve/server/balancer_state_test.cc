// SPDX-License-Identifier: Apache-2.0
#include "server/balancer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BalancerState, WithoutOnlineBalancingItIsOff) {
  const BalancerState balancer(nullptr);
  const std::string metrics = balancer.metrics({.ratio = 0.25, .without_moves = {}});
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_imbalance 0.25\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_balancer_state{state=\"off\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_ep_balancer_state{state=\"active\"} 0\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("without_moves")));
  EXPECT_THAT(metrics, Not(HasSubstr("gain")));
  EXPECT_EQ(balancer.json()["state"], "off");
}

class OnlineState : public testing::Test {
 protected:
  run::OnlineTotals totals_;
  BalancerState balancer_{[this] { return totals_; }};
  std::string metrics() const { return balancer_.metrics({.ratio = 0.1, .without_moves = 0.7}); }
};

TEST_F(OnlineState, ShowsWhatMovesHaveBroughtAndCost) {
  totals_.ledger = {.moves = 9,
                    .expected_seconds = 4.0,
                    .saved_seconds = 3.0,
                    .lost_seconds = 0.5,
                    .paid_seconds = 0.25};
  totals_.hash_failures = 2;
  totals_.lent_copies = 5;
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_imbalance_without_moves 0.7\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_expected_gain_seconds_total 4\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_gain_seconds_total 3\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_loss_seconds_total 0.5\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_cost_seconds_total 0.25\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_copies_with_wrong_hash_total 2\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_late_copies_total 5\n"));
  EXPECT_THAT(metrics(), HasSubstr("state=\"active\"} 1\n"));
  EXPECT_EQ(balancer_.json()["saved_seconds"], 3.0);
}

// Counters of Prometheus never fall, but a group with other members counts from zero.
TEST_F(OnlineState, SumsGoOnWhenMembersChange) {
  totals_.ledger = {.saved_seconds = 3.0, .paid_seconds = 0.25};
  totals_.hash_failures = 2;
  totals_.lent_copies = 5;
  EXPECT_THAT(metrics(), HasSubstr("gain_seconds_total 3\n"));
  totals_.group = 2;
  totals_.ledger = {.saved_seconds = 0.5, .paid_seconds = 0.125};
  totals_.hash_failures = 0;
  totals_.lent_copies = 1;
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_gain_seconds_total 3.5\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_copies_with_wrong_hash_total 2\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_late_copies_total 6\n"));
  totals_.ledger = {.saved_seconds = 1.0, .paid_seconds = 0.25};
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_gain_seconds_total 4\n"));
}

// Nobody has read for so long that the next group has paid more than the last one.
TEST_F(OnlineState, SumsGoOnWhereTheNextGroupHasPaidMore) {
  totals_.ledger = {.saved_seconds = 3.0, .paid_seconds = 0.25};
  totals_.hash_failures = 2;
  EXPECT_THAT(metrics(), HasSubstr("gain_seconds_total 3\n"));
  totals_.group = 2;
  totals_.ledger = {.saved_seconds = 1.0, .paid_seconds = 0.5};
  totals_.hash_failures = 1;
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_gain_seconds_total 4\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_copies_with_wrong_hash_total 3\n"));
  balancer_.members_changed();  // told late
  EXPECT_THAT(metrics(), HasSubstr("\nwideep_ep_gain_seconds_total 4\n"));
}

TEST_F(OnlineState, TellsOfRestsAndSilence) {
  totals_.resting = 1;
  EXPECT_EQ(balancer_.state(), BalancerState::State::kResting);
  balancer_.take({.stage = 0, .rank = 2, .seconds = 10});
  balancer_.take({.stage = 0, .rank = -1, .seconds = 10});
  EXPECT_EQ(balancer_.state(), BalancerState::State::kSilent);
  balancer_.take({.stage = 0, .rank = 2, .is_over = true, .seconds = 12});
  EXPECT_EQ(balancer_.state(), BalancerState::State::kSilent);
  balancer_.take({.stage = 0, .rank = -1, .is_over = true, .seconds = 12});
  EXPECT_EQ(balancer_.state(), BalancerState::State::kResting);
  balancer_.take({.stage = 0, .rank = 1, .seconds = 10});
  balancer_.members_changed();
  totals_.resting = 0;
  EXPECT_EQ(balancer_.state(), BalancerState::State::kActive);
}

}  // namespace
}  // namespace wideep::server
