// SPDX-License-Identifier: Apache-2.0
#include "server/router_pd_costs.h"

#include <gtest/gtest.h>

#include <vector>

namespace wideep::server {
namespace {

using engine::Role;

constexpr double kPrice = 1e-3;

PdServer server(Role role) { return {.role = role, .price = kPrice}; }

// Two of each role: 0 and 1 compute prompts, 2 and 3 answer.
class RouterPdCosts : public testing::Test {
 protected:
  PdPlan plan(double tokens, bool may_divide = true, size_t turn = 0) const {
    return plan_request(servers, {.prompt_tokens = tokens, .may_divide = may_divide, .turn = turn},
                        options);
  }
  bool divides(double tokens) const { return plan(tokens).prefill != kNoReplica; }

  std::vector<PdServer> servers = {server(Role::kPrefill), server(Role::kPrefill),
                                   server(Role::kDecode), server(Role::kDecode)};
  DisaggregationOptions options;
};

TEST_F(RouterPdCosts, SumsAreWorkedOutByHand) {
  // 1,000 tokens, of which it knows 400: 0.6 s after 0.2 s; two answers wait as long, and count.
  const PdServer decode{.running = 2, .queued = 200, .known = 400, .price = kPrice};
  const PdCost alone = cost_alone(decode, 1000);
  EXPECT_NEAR(alone.seconds, 0.8, 1e-9);
  EXPECT_NEAR(alone.waiting, 0.8 + 2 * (0.6 + 1.024), 1e-9);
  // 1,000 = 15 · 64 + 40: the last page has 40.
  const PdServer prefill{.running = 1, .queued = 100, .known = 0, .price = kPrice / 2};
  const PdCost divided = cost_divided(prefill, decode, 1000, 0);
  const double seconds = 0.05 + 0.5 + 600 * kTransferSecondsPerToken + 0.04 + kLegSeconds;
  EXPECT_NEAR(divided.seconds, seconds, 1e-9);
  EXPECT_NEAR(divided.waiting, seconds + 0.5 + 2 * (0.04 + 1.024), 1e-9);
  // A whole number of pages: the last has 64.
  EXPECT_NEAR(cost_divided(prefill, decode, 640, 0).seconds,
              std::max(0.05 + 0.32 + 240 * kTransferSecondsPerToken, 0.2) + 0.064 + kLegSeconds,
              1e-9);
}

// 320 tokens more are known to another one.
TEST_F(RouterPdCosts, EarlierPagesAreOnTheWayInsteadOfComputed) {
  const PdServer decode{.queued = 0, .known = 400, .price = kPrice};
  const PdServer prefill{.running = 1, .queued = 0, .known = 80, .price = kPrice / 2};
  const PdCost cost = cost_divided(prefill, decode, 1000, 320);
  const double seconds = 0.3 + (320 + 600) * kTransferSecondsPerToken + 0.04 + kLegSeconds;
  EXPECT_NEAR(cost.seconds, seconds, 1e-9);
  EXPECT_NEAR(cost.waiting, seconds + 0.3, 1e-9);
}

// Its answering server has the first turn, and eight answers that would wait for the rest.
TEST_F(RouterPdCosts, ASecondTurnTakesTheFirstFromWhoeverKnowsMost) {
  servers[2].running = servers[3].running = 8;
  servers[2].known = 3000;
  PdPlan best = plan(4000);
  EXPECT_EQ(best.decode, 2u);
  EXPECT_EQ(best.prefill, 0u);
  EXPECT_EQ(best.earlier, 2u);
  EXPECT_NEAR(best.seconds, 1.0 + 4000 * kTransferSecondsPerToken + 0.032 + kLegSeconds, 1e-9);
  // It need not be the one that answers.
  servers[1].known = 3500;
  servers[1].queued = 100'000;
  best = plan(4000);
  EXPECT_EQ(best.prefill, 0u);
  EXPECT_EQ(best.earlier, 1u);
  // One that is gone, or has not said how, gives none.
  servers[1].is_up = false;
  EXPECT_EQ(plan(4000).earlier, 2u);
  servers[2].gives_pages = false;
  EXPECT_EQ(plan(4000).earlier, kNoReplica);
  servers[2].gives_pages = true;
  servers[0].known = 3000 - kWorthPages * 64 + 1;  // hardly less
  EXPECT_EQ(plan(4000).earlier, kNoReplica);
  servers[0].known = 3000 - kWorthPages * 64;
  EXPECT_EQ(plan(4000).earlier, 2u);
  servers[0].price = kTransferSecondsPerToken / 2;  // computed sooner than sent
  EXPECT_EQ(plan(4000).earlier, kNoReplica);
}

TEST_F(RouterPdCosts, WhatTheWayTakesIsMeasured) {
  const PdServer decode{.known = 400, .price = kPrice, .way = 1e-4};
  const PdServer prefill{.known = 80, .price = kPrice / 2, .way = 2e-4};
  const double seconds = 0.3 + 320 * 2e-4 + 600 * 1e-4 + 0.04 + kLegSeconds;
  EXPECT_NEAR(cost_divided(prefill, decode, 1000, 320).seconds, seconds, 1e-9);
  // Where it is slow everybody computes.
  servers[2].running = servers[3].running = 8;
  EXPECT_TRUE(divides(4000));
  servers[2].way = servers[3].way = 1.0;
  EXPECT_FALSE(divides(4000));
}

TEST_F(RouterPdCosts, AFullCacheIsWaitedFor) {
  PdServer decode{.price = kPrice};
  const PdServer prefill{.price = kPrice};
  const double alone = cost_alone(decode, 1000).seconds;
  const double divided = cost_divided(prefill, decode, 1000, 0).seconds;
  decode.kv_share = kFullShare;
  EXPECT_EQ(cost_alone(decode, 1000).seconds, alone);
  decode.kv_share = 0.95;
  EXPECT_NEAR(cost_alone(decode, 1000).seconds, alone + kRoomSeconds / 2, 1e-9);
  EXPECT_EQ(cost_divided(prefill, decode, 1000, 0).seconds, divided);  // meanwhile it is computed
  decode.kv_share = 7;
  EXPECT_NEAR(cost_alone(decode, 1000).seconds, alone + kRoomSeconds, 1e-9);
  EXPECT_NEAR(cost_divided(prefill, decode, 1000, 0).seconds,
              kRoomSeconds + 40 * kPrice + kLegSeconds, 1e-9);
  // Of two that answer the other one does.
  EXPECT_EQ(plan(1000).decode, 2u);
  servers[2].kv_share = 0.99;
  EXPECT_EQ(plan(1000).decode, 3u);
}

// Nothing waits: the one that answers is as quick.
TEST_F(RouterPdCosts, WhereNothingIsGainedOneServerDoesAll) {
  const PdPlan idle = plan(4000);
  EXPECT_EQ(idle.prefill, kNoReplica);
  EXPECT_EQ(idle.decode, 2u);
  EXPECT_NEAR(idle.seconds, 4.0, 1e-9);
  servers[2].running = servers[3].running = 8;
  EXPECT_TRUE(divides(4000));  // eight answers would wait for it
  EXPECT_FALSE(divides(63));   // shorter than a page
  servers[2].known = servers[3].known = 3990;
  EXPECT_FALSE(divides(4000));  // a second turn
  servers[2].known = servers[3].known = 0;
  servers[0].queued = servers[1].queued = 100'000;
  EXPECT_FALSE(divides(4000));  // it would wait longer there
}

TEST_F(RouterPdCosts, TheBestPairIsChosen) {
  for (PdServer& each : servers) {
    each.is_busy_with_prompts = true;
    each.gives_pages = false;
  }
  servers[2].running = 8;
  servers[3].running = 6;
  servers[0].queued = 500;
  PdPlan best = plan(4000);
  EXPECT_EQ(best.decode, 3u);
  EXPECT_EQ(best.prefill, 1u);
  servers[0].known = 3000;
  EXPECT_EQ(plan(4000).prefill, 0u);
  servers[0].price = kPrice * 10;
  EXPECT_EQ(plan(4000).prefill, 1u);
  servers[2].known = 3999;  // nothing to compute
  best = plan(4000);
  EXPECT_EQ(best.decode, 2u);
  EXPECT_EQ(best.prefill, kNoReplica);
  servers[2].running = 12;  // but answers that make it slow
  EXPECT_EQ(plan(4000).decode, 3u);
}

TEST_F(RouterPdCosts, WhereNothingIsDividedAllAnswer) {
  servers[1].is_busy_with_prompts = true;
  EXPECT_EQ(plan(40).decode, 2u);  // equal ones: the role counts
  servers[2].running = servers[3].running = 2;
  EXPECT_EQ(plan(40).decode, 0u);
  servers[0].running = 3;
  EXPECT_EQ(plan(40).decode, 2u);
  servers[0].running = 0;
  const PdPlan divided = plan(4000);  // the answers of 2 and 3 would wait
  EXPECT_EQ(divided.decode, 2u);
  EXPECT_EQ(divided.prefill, 0u);
  EXPECT_EQ(plan(100).decode, 0u);  // a short one is worth no second server
  options.always = true;
  EXPECT_EQ(plan(100).decode, 2u);
  options.always = false;
  servers[0].is_busy_with_prompts = true;
  EXPECT_EQ(plan(40).decode, 2u);
  EXPECT_EQ(plan(100).prefill, 0u);
  servers[0].is_busy_with_prompts = false;
  servers[0].may_answer = false;
  EXPECT_EQ(plan(40).decode, 2u);
  servers[0].may_answer = true;
  options.generation_rule = PlacementRule::kLoadBalancing;  // of servers that answer
  EXPECT_EQ(plan(40).decode, 2u);
}

TEST_F(RouterPdCosts, RolesArePreferences) {
  servers[2].is_up = servers[3].is_up = false;
  PdPlan left = plan(4000);
  EXPECT_EQ(left.decode, 0u);
  servers[2].is_up = true;
  servers[2].may_answer = false;  // it has been tried
  left = plan(4000);
  EXPECT_EQ(left.decode, 0u);
  for (PdServer& each : servers) each.is_up = false;
  EXPECT_EQ(plan(4000).decode, 3u);  // rather the role than none
  for (PdServer& each : servers) each.may_answer = false;
  EXPECT_EQ(plan(4000).decode, kNoReplica);
  EXPECT_EQ(plan_request({}, {.prompt_tokens = 9}, options).decode, kNoReplica);
}

TEST_F(RouterPdCosts, WithoutPrefillServersTheAnsweringOnesComputePrompts) {
  options.always = true;
  EXPECT_TRUE(divides(4000));
  servers[0].is_up = servers[1].is_up = false;
  EXPECT_FALSE(divides(4000));  // those that answer only do not
  servers[3].role = Role::kBoth;
  servers[3].running = 9;
  const PdPlan shared = plan(4000);
  EXPECT_EQ(shared.decode, 2u);
  EXPECT_EQ(shared.prefill, 3u);
  servers[3].may_prefill = false;
  EXPECT_FALSE(divides(4000));
}

TEST_F(RouterPdCosts, UnmeasuredServersDivideByRole) {
  for (PdServer& each : servers) each.price.reset();
  EXPECT_FALSE(divides(127));
  EXPECT_TRUE(divides(128));
  servers[2].known = servers[3].known = 100;
  EXPECT_FALSE(divides(200));
  servers[0].role = servers[1].role = Role::kBoth;
  EXPECT_FALSE(divides(4000));
  // One without a price costs what the others do.
  servers[0] = servers[1] = server(Role::kPrefill);
  servers[2].running = 1;
  servers[2].known = servers[3].known = 0;
  EXPECT_EQ(plan(4000).decode, 3u);
}

TEST_F(RouterPdCosts, FixedRulesComeBeforeCosts) {
  options.max_local_prefill_length = 1000;
  EXPECT_FALSE(divides(1000));
  EXPECT_TRUE(divides(1001));
  options = {.eff_isl_threshold = 500};
  servers[2].known = servers[3].known = 600;
  EXPECT_FALSE(divides(1099));
  EXPECT_TRUE(divides(1100));
  options.eff_isl_ratio_threshold = 0.5;
  EXPECT_FALSE(divides(1100));  // 500 of 1,100
  EXPECT_TRUE(divides(1200));
  options = {.always = true};
  EXPECT_TRUE(divides(64));
  EXPECT_FALSE(divides(63));
  EXPECT_EQ(plan(64, false).prefill, kNoReplica);
}

TEST_F(RouterPdCosts, RulesOfPlacementChooseAmongTheServersOfARole) {
  options = {.context_rule = PlacementRule::kRoundRobin,
             .generation_rule = PlacementRule::kRoundRobin,
             .always = true};
  servers[0].queued = servers[2].running = 1000;
  for (size_t turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(plan(4000, true, turn).prefill, turn % 2);
    EXPECT_EQ(plan(4000, true, turn).decode, 2 + turn % 2);
  }
  options.context_rule = options.generation_rule = PlacementRule::kLoadBalancing;
  servers[0].known = servers[2].known = 3999;  // of no interest
  for (size_t turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(plan(4000, true, turn).prefill, 1u);
    EXPECT_EQ(plan(4000, true, turn).decode, 3u);
  }
}

TEST_F(RouterPdCosts, EqualServersTakeTurns) {
  options.always = true;
  EXPECT_EQ(plan(4000, true, 0).decode, 2u);
  EXPECT_EQ(plan(4000, true, 1).decode, 3u);
  EXPECT_EQ(plan(4000, true, 0).prefill, 0u);
  EXPECT_EQ(plan(4000, true, 1).prefill, 1u);
}

}  // namespace
}  // namespace wideep::server
