// SPDX-License-Identifier: Apache-2.0
//
// What C adds is held here, what plans are worth in src/balance: several layers in one call, null
// for what is not wanted, messages that name layer and expert, and outputs that an error leaves as
// they were. Functions are held against each other: a resplitter that was reset against
// wideep_resplit, a repair in place against one into other arrays. A failure is a wrong plan or a
// crash in an engine that has only this interface.
#include "wideep/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr wideep_plan_shape kShape = {.num_experts = 6, .ep_size = 3, .num_slots = 9};

std::vector<double> some_load() { return {60, 1, 5, 9, 12, 3}; }

struct Planner {
  explicit Planner(const char* name, int split = WIDEEP_SPLIT_EQUAL) {
    const wideep_planner_options options = {.split = split};
    EXPECT_EQ(wideep_planner_create(name, &kShape, &options, &planner), WIDEEP_OK)
        << wideep_last_error();
  }
  ~Planner() { wideep_planner_destroy(planner); }
  wideep_planner* planner = nullptr;
};

double imbalance(const std::vector<int32_t>& placement, const double* shares,
                 const std::vector<double>& load) {
  double result = -1;
  EXPECT_EQ(wideep_imbalance(&kShape, placement.data(), shares, load.data(), &result), WIDEEP_OK)
      << wideep_last_error();
  return result;
}

TEST(CApi, PlansSeveralLayersAtOnce) {
  std::vector<double> load = some_load();
  load.insert(load.end(), {1, 1, 1, 1, 1, 1});
  for (const char* name : {"wideep", "trt", "deepseek"}) {
    const Planner planner(name);
    std::vector<int32_t> both(18, -1), first(9, -1);
    ASSERT_EQ(wideep_planner_plan(planner.planner, 2, load.data(), both.data(), nullptr),
              WIDEEP_OK);
    ASSERT_EQ(wideep_planner_plan(planner.planner, 1, load.data(), first.data(), nullptr),
              WIDEEP_OK);
    EXPECT_EQ(std::vector<int32_t>(both.begin(), both.begin() + 9), first) << name;
    EXPECT_THAT(both, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(6)))) << name;
  }
}

TEST(CApi, ExpertsChosenTogetherShareARank) {
  const wideep_plan_shape shape = {.num_experts = 6, .ep_size = 3, .num_slots = 6};
  wideep_planner* planner = nullptr;
  ASSERT_EQ(wideep_planner_create("cooccurrence", &shape, nullptr, &planner), WIDEEP_OK);
  const std::vector<double> load(6, 10.0);
  std::vector<int64_t> pairs(36, 0);
  for (const auto& [a, b] : {std::pair(0, 5), {1, 3}, {2, 4}}) {
    pairs[static_cast<size_t>(a * 6 + b)] = pairs[static_cast<size_t>(b * 6 + a)] = 10;
  }
  std::vector<int32_t> placement(6, -1);
  EXPECT_EQ(wideep_planner_plan(planner, 1, load.data(), placement.data(), nullptr),
            WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("wideep_planner_plan_pairs"));
  ASSERT_EQ(
      wideep_planner_plan_pairs(planner, 1, load.data(), pairs.data(), placement.data(), nullptr),
      WIDEEP_OK);
  for (size_t rank = 0; rank < 3; ++rank) {
    const int32_t a = placement[2 * rank], b = placement[2 * rank + 1];
    EXPECT_EQ(pairs[static_cast<size_t>(a * 6 + b)], 10) << "rank " << rank;
  }
  pairs[7] = -3;
  EXPECT_EQ(
      wideep_planner_plan_pairs(planner, 1, load.data(), pairs.data(), placement.data(), nullptr),
      WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("found -3 at index 7"));
  wideep_planner_destroy(planner);
}

TEST(CApi, WeightedPlanIsPerfectAndResplitFollowsTheLoad) {
  std::vector<double> load = some_load();
  const Planner planner("wideep", WIDEEP_SPLIT_WEIGHTED);
  std::vector<int32_t> placement(9);
  std::vector<double> shares(9);
  ASSERT_EQ(wideep_planner_plan(planner.planner, 1, load.data(), placement.data(), shares.data()),
            WIDEEP_OK);
  EXPECT_NEAR(imbalance(placement, shares.data(), load), 0.0, 1e-9);
  load[0] += 6;
  const double drifted = imbalance(placement, shares.data(), load);
  EXPECT_GT(drifted, 0.001);
  ASSERT_EQ(wideep_resplit(&kShape, placement.data(), load.data(), shares.data()), WIDEEP_OK);
  EXPECT_LT(imbalance(placement, shares.data(), load), drifted);
}

TEST(CApi, ResplitterGivesWhatResplitGivesForEveryLoadAndPlacement) {
  const Planner planner("wideep", WIDEEP_SPLIT_WEIGHTED);
  wideep_resplitter* resplitter = nullptr;
  std::vector<double> load = some_load(), shares(9), expected(9);
  std::vector<int32_t> placement(9);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(wideep_planner_plan(planner.planner, 1, load.data(), placement.data(), nullptr),
              WIDEEP_OK);
    ASSERT_EQ(resplitter == nullptr
                  ? wideep_resplitter_create(&kShape, placement.data(), &resplitter)
                  : wideep_resplitter_reset(resplitter, placement.data()),
              WIDEEP_OK);
    std::rotate(load.begin(), load.begin() + 1, load.end());
    double max_load = 0;
    ASSERT_EQ(wideep_resplitter_run(resplitter, load.data(), shares.data(), &max_load), WIDEEP_OK);
    ASSERT_EQ(wideep_resplit(&kShape, placement.data(), load.data(), expected.data()), WIDEEP_OK);
    EXPECT_EQ(shares, expected);
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / kShape.ep_size;
    EXPECT_NEAR(max_load / mean - 1, imbalance(placement, shares.data(), load), 1e-9);
    load[2] += 17;
  }
  wideep_resplitter_destroy(resplitter);
}

TEST(CApi, ResplitterNamesTheRanksThatCannotGiveLoadAway) {
  const std::vector<int32_t> placement = {0, 1, 2, 3, 4, 2, 5, 5, 3};
  const std::vector<double> load = {60, 1, 1, 1, 1, 1};
  std::vector<double> shares(9);
  wideep_resplitter* resplitter = nullptr;
  ASSERT_EQ(wideep_resplitter_create(&kShape, placement.data(), &resplitter), WIDEEP_OK);
  ASSERT_EQ(wideep_resplitter_run(resplitter, load.data(), shares.data(), nullptr), WIDEEP_OK);
  const int32_t* ranks = nullptr;
  int32_t num_ranks = -1;
  ASSERT_EQ(wideep_resplitter_bottleneck(resplitter, &ranks, &num_ranks), WIDEEP_OK);
  ASSERT_EQ(num_ranks, 1);
  EXPECT_EQ(ranks[0], 0);
  const std::vector<double> before = shares;
  EXPECT_EQ(wideep_resplitter_run(resplitter, nullptr, shares.data(), nullptr),
            WIDEEP_INVALID_INPUT);
  EXPECT_EQ(shares, before);
  wideep_resplitter_destroy(resplitter);
}

struct Repairer {
  explicit Repairer(const wideep_repair_options& options) {
    EXPECT_EQ(wideep_repairer_create(&kShape, &options, &repairer), WIDEEP_OK)
        << wideep_last_error();
  }
  ~Repairer() { wideep_repairer_destroy(repairer); }
  wideep_repairer* repairer = nullptr;
};

TEST(CApi, RepairMovesExpertsWhereSharesAreNotEnough) {
  const std::vector<int32_t> one_layer = {0, 1, 2, 3, 4, 2, 5, 1, 3};
  std::vector<int32_t> from = one_layer, to(18);
  from.insert(from.end(), one_layer.begin(), one_layer.end());
  const std::vector<double> load = {60, 1, 5, 9, 12, 3, 10, 10, 10, 10, 10, 14};
  std::vector<double> shares(18);
  std::vector<wideep_repair_report> reports(2);
  const Repairer repairer({.split = WIDEEP_SPLIT_WEIGHTED, .bytes_per_expert = 100});
  ASSERT_EQ(wideep_repairer_repair(repairer.repairer, 2, load.data(), from.data(), nullptr,
                                   to.data(), shares.data(), reports.data()),
            WIDEEP_OK)
      << wideep_last_error();
  EXPECT_GT(reports[0].moves, 0);
  EXPECT_EQ(reports[0].bytes, 100 * reports[0].moves);
  EXPECT_GT(reports[0].imbalance_resplit, reports[0].imbalance_after + 0.1);
  EXPECT_EQ(reports[1].moves, 0);
  EXPECT_GT(reports[1].imbalance_before, reports[1].imbalance_resplit);
  const std::vector<int32_t> first(to.begin(), to.begin() + 9), second(to.begin() + 9, to.end());
  EXPECT_EQ(second, one_layer);
  EXPECT_NEAR(imbalance(first, shares.data(), {load.begin(), load.begin() + 6}),
              reports[0].imbalance_after, 1e-9);

  // In place, without what is not wanted.
  ASSERT_EQ(wideep_repairer_repair(repairer.repairer, 2, load.data(), from.data(), nullptr,
                                   from.data(), nullptr, nullptr),
            WIDEEP_OK);
  EXPECT_EQ(from, to);

  const Repairer bounded({.split = WIDEEP_SPLIT_EQUAL, .max_moves = 1});
  ASSERT_EQ(wideep_repairer_repair(bounded.repairer, 1, load.data(), one_layer.data(), nullptr,
                                   to.data(), nullptr, reports.data()),
            WIDEEP_OK);
  EXPECT_EQ(reports[0].moves, 1);
  EXPECT_EQ(reports[0].imbalance_resplit, reports[0].imbalance_before);
}

TEST(CApi, DeadRanksGetNoExpertsInPlansAndRepairs) {
  const std::vector<int32_t> usable = {3, 0, 3};
  const wideep_plan_shape shape = {
      .num_experts = 6, .ep_size = 3, .num_slots = 9, .rank_slots = usable.data()};
  const std::vector<double> load = some_load();
  wideep_planner* planner = nullptr;
  ASSERT_EQ(wideep_planner_create("wideep", &shape, nullptr, &planner), WIDEEP_OK)
      << wideep_last_error();
  std::vector<int32_t> placement(9);
  ASSERT_EQ(wideep_planner_plan(planner, 1, load.data(), placement.data(), nullptr), WIDEEP_OK);
  wideep_planner_destroy(planner);
  EXPECT_THAT(std::vector<int32_t>(placement.begin() + 3, placement.begin() + 6),
              testing::Each(-1));
  EXPECT_LT(imbalance(placement, nullptr, load), 1.0);

  const std::vector<int32_t> from = {0, 1, 2, 3, 4, 2, 5, 1, 0};  // 3 and 4 live on rank 1 only
  wideep_repairer* repairer = nullptr;
  wideep_repair_report report;
  ASSERT_EQ(wideep_repairer_create(&shape, nullptr, &repairer), WIDEEP_OK);
  ASSERT_EQ(wideep_repairer_repair(repairer, 1, load.data(), from.data(), nullptr, placement.data(),
                                   nullptr, &report),
            WIDEEP_OK)
      << wideep_last_error();
  wideep_repairer_destroy(repairer);
  EXPECT_EQ(report.forced_moves, 2);
  EXPECT_THAT(placement, testing::IsSupersetOf({0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(std::vector<int32_t>(placement.begin() + 3, placement.begin() + 6),
              testing::Each(-1));
}

TEST(CApi, RepairRefusesAnInvalidPlan) {
  const std::vector<int32_t> good = {0, 1, 2, 3, 4, 2, 5, 1, 3};
  std::vector<int32_t> from = good, to(18, -7);
  from.insert(from.end(), {0, 1, 2, 3, 4, 2, 0, 1, 3});  // layer 1: no expert 5
  const std::vector<double> load(12, 1.0);
  const Repairer repairer({});
  const auto repair = [&](int32_t layers, const double* shares) {
    return wideep_repairer_repair(repairer.repairer, layers, load.data(), from.data(), shares,
                                  to.data(), nullptr, nullptr);
  };
  EXPECT_EQ(repair(2, nullptr), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), AllOf(HasSubstr("layer 1"), HasSubstr("expert 5")));
  std::vector<double> shares = {1, 0.5, 0.5, 0.5, 1, 0.5, 1, 0.5, 0.25};
  EXPECT_EQ(repair(1, shares.data()), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), AllOf(HasSubstr("layer 0"), HasSubstr("shares of expert 3")));
  shares[8] = std::nan("");
  EXPECT_EQ(repair(1, shares.data()), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("share of slot 8"));
  EXPECT_EQ(repair(-1, nullptr), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(to, testing::Each(-7));

  wideep_repairer* refused = nullptr;
  const wideep_repair_options options = {.max_moves = -1};
  EXPECT_EQ(wideep_repairer_create(&kShape, &options, &refused), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("max_moves"));
  EXPECT_EQ(refused, nullptr);
}

TEST(CApi, LowerBoundIsBelowThePlan) {
  const std::vector<double> load = some_load();
  const Planner planner("wideep");
  std::vector<int32_t> placement(9);
  wideep_planner_plan(planner.planner, 1, load.data(), placement.data(), nullptr);
  double bound = -1;
  ASSERT_EQ(wideep_imbalance_lower_bound(&kShape, load.data(), WIDEEP_SPLIT_EQUAL, &bound),
            WIDEEP_OK);
  EXPECT_GE(bound, 0);
  EXPECT_LE(bound, imbalance(placement, nullptr, load) + 1e-12);
}

TEST(CApi, BadInputIsExplainedAndLeavesOutputsUnchanged) {
  wideep_planner* planner = nullptr;
  const auto create = [&](const char* name, const wideep_plan_shape& shape,
                          const wideep_planner_options& options) {
    EXPECT_EQ(wideep_planner_create(name, &shape, &options, &planner), WIDEEP_INVALID_INPUT);
    return std::string(wideep_last_error());
  };
  wideep_plan_shape uneven = kShape, newer = kShape;
  uneven.num_slots = 10;
  newer.reserved[3] = 1;
  EXPECT_THAT(create("wideep", uneven, {}), HasSubstr("10"));
  EXPECT_THAT(create("wideep", newer, {}), HasSubstr("shape: expected zeros"));
  EXPECT_THAT(create("best", kShape, {}), HasSubstr("wideep, trt, deepseek"));
  EXPECT_THAT(create("wideep", kShape, {.split = 2}), HasSubstr("found 2"));
  EXPECT_THAT(create("wideep", kShape, {.tolerance = -1}), HasSubstr("tolerance"));
  EXPECT_THAT(create("wideep", kShape, {.max_rounds = -1}), HasSubstr("max_rounds"));
  EXPECT_THAT(create(nullptr, kShape, {}), HasSubstr("name"));
  EXPECT_EQ(planner, nullptr);

  const std::vector<int32_t> no_expert_5 = {0, 1, 2, 3, 4, 0, 0, 1, 2};
  std::vector<double> load = some_load(), shares(9, 7.0);
  EXPECT_EQ(wideep_resplit(&kShape, no_expert_5.data(), load.data(), shares.data()),
            WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("expert 5"));
  EXPECT_THAT(shares, testing::Each(7.0));
}

TEST(CApi, BadLoadsNameLayerAndExpert) {
  const Planner planner("wideep");
  std::vector<int32_t> placement(18, -1);
  const double bad[] = {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1.7e308};
  for (double value : bad) {
    std::vector<double> load(12, value == 1.7e308 ? 1.7e308 : 1.0);
    load[8] = value;
    EXPECT_EQ(wideep_planner_plan(planner.planner, 2, load.data(), placement.data(), nullptr),
              WIDEEP_INVALID_INPUT);
    EXPECT_THAT(wideep_last_error(),
                HasSubstr(value == 1.7e308 ? "layer 0, expert 1" : "layer 1, expert 2"));
  }
  EXPECT_THAT(placement, testing::Each(-1));
}

TEST(CApi, VersionHasThreeParts) {
  EXPECT_THAT(wideep_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
