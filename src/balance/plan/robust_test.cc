// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of requests take turns, so that a plan for their sum is bad for each and the better
// method is known. Plans are made from the first eight windows and judged on four that come later.
// Held is the choice by windows left out, that it stays with the sum where nothing is gained, and
// that shares fit the windows, not only their mean. A failure is a plan that is good on the
// recording and bad in service.
#include "plan/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace wideep::balance {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RobustMethod::Kind;

constexpr PlanShape kShape{.num_experts = 32, .ep_size = 8, .num_slots = 40};

// Two kinds of requests take turns; each has its own hot experts.
WindowedLoad taking_turns(int windows, int layers = 3) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> tokens(6.0, 0.8), noise(0.0, 0.05);
  WindowedLoad load{.num_experts = 32, .layers = {}, .load = {}};
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<std::vector<double>> kinds(2);
    for (auto& kind : kinds) {
      for (int e = 0; e < 32; ++e) kind.push_back(tokens(random));
    }
    Windows& added = load.load.emplace_back();
    for (int w = 0; w < windows; ++w) {
      added.push_back(kinds[static_cast<size_t>(w % 2)]);
      for (double& each : added.back()) each = std::floor(each * noise(random));
    }
    load.layers.push_back(layer);
  }
  return load;
}

WindowedLoad part_of(const WindowedLoad& load, size_t begin, size_t end) {
  WindowedLoad part = load;
  for (size_t i = 0; i < load.load.size(); ++i) {
    part.load[i] = Windows(load.load[i].begin() + static_cast<std::ptrdiff_t>(begin),
                           load.load[i].begin() + static_cast<std::ptrdiff_t>(end));
  }
  return part;
}

double later_imbalance(const WindowedLoad& load, const RobustOptions& options) {
  const auto plan = plan_robust(part_of(load, 0, 8), kShape, {}, options).value();
  return figures_in_windows(part_of(load, 8, 12), plan.model, false).mean;
}

TEST(ExpectedLoad, EachMethod) {
  const Windows windows = {{30, 10}, {20, 180}};  // parts 0.75, 0.25; 0.1, 0.9
  EXPECT_THAT(expected_load(windows, {Kind::kSum}), ElementsAre(50, 190));
  EXPECT_THAT(expected_load(windows, {Kind::kMean}),
              ElementsAre(DoubleNear(0.425, 1e-12), DoubleNear(0.575, 1e-12)));
  EXPECT_THAT(expected_load(windows, {Kind::kWindows}), expected_load(windows, {Kind::kMean}));
  EXPECT_THAT(expected_load(windows, {Kind::kStd, 2.0}),
              ElementsAre(DoubleNear(1.075, 1e-12), DoubleNear(1.225, 1e-12)));
  EXPECT_THAT(expected_load(windows, {Kind::kRecent}),  // 2 ^ (4 · -1 / 2) = 1 / 4
              ElementsAre(DoubleNear(0.2875, 1e-12), DoubleNear(0.9625, 1e-12)));
}

TEST(RobustMethod, NamesAndRefusals) {
  for (const char* name :
       {"sum", "plain", "mean", "std:1", "std:0.5", "recent", "windows", "counts"}) {
    EXPECT_EQ(name_of(parse_robust_method(name).value()), name);
  }
  for (const char* name : {"", "best", "std", "std:", "std:x", "std:-1", "std:1e9", "std:nan"}) {
    EXPECT_THAT(parse_robust_method(name).status().message(), HasSubstr("std:Z")) << name;
  }
}

TEST(PlanRobust, WindowsAreMuchBetterForAlternatingKindsOfRequests) {
  const WindowedLoad load = taking_turns(12);
  const double sum = later_imbalance(load, {.method = RobustMethod{Kind::kSum}});
  const double windows = later_imbalance(load, {.method = RobustMethod{Kind::kWindows}});
  EXPECT_GT(sum, 0.1);
  EXPECT_LT(windows, 0.5 * sum);
}

TEST(PlanRobust, ChoosesTheBestMethodOnWindowsLeftOut) {
  const WindowedLoad load = taking_turns(8);
  int plans = 0;
  RobustOptions options;
  options.layer_done = [&] { ++plans; };
  const RobustPlan plan = plan_robust(load, kShape, {}, options).value();
  EXPECT_EQ(name_of(plan.method), "counts");
  EXPECT_EQ(plan.scores.size(), 6u);
  EXPECT_EQ(plans, num_layer_plans(load, Split::kEqual, options));
  for (const MethodScore& score : plan.scores) {
    EXPECT_GE(score.left_out.worst, score.left_out.mean);
    EXPECT_GE(score.left_out.std, 0.0);
  }
  options.objective = RobustObjective::kWorst;
  const RobustPlan worst = plan_robust(load, kShape, {}, options).value();
  for (const MethodScore& score : worst.scores) {
    const auto chosen = std::find_if(worst.scores.begin(), worst.scores.end(),
                                     [&](const auto& s) { return s.method == worst.method; });
    EXPECT_LE(0.95 * chosen->left_out.worst, score.left_out.worst);
  }
}

TEST(PlanRobust, ChoosesTheSumWithoutAGain) {
  WindowedLoad load = taking_turns(8);
  for (Windows& windows : load.load) windows.assign(8, windows[0]);
  EXPECT_EQ(name_of(plan_robust(load, kShape, {}, {})->method), "sum");
}

TEST(PlanRobust, TheSumIsThePlanForTheSum) {
  const WindowedLoad load = taking_turns(4);
  const RobustPlan plan = plan_robust(load, kShape, {}, {.method = RobustMethod{}}).value();
  const auto planner = make_planner("wideep", kShape, {}).value();
  LayerPlan expected;
  planner->plan(expected_load(load.load[1], {}), &expected);
  EXPECT_EQ(plan.model.placement.layers.at(1), expected.placement);
  EXPECT_TRUE(plan.scores.empty());
}

// A plan that shares make perfect for the sum is worse for single windows where spare slots are
// few.
TEST(PlanRobust, WithWeightedSplitThePlainPlanIsTriedToo) {
  const WindowedLoad all = taking_turns(12);
  constexpr PlanShape kFewSpares{.num_experts = 32, .ep_size = 18, .num_slots = 36};
  const PlannerOptions weighted{.split = Split::kWeighted};
  const auto later = [&](const RobustOptions& options) {
    const auto plan = plan_robust(part_of(all, 0, 8), kFewSpares, weighted, options).value();
    return figures_in_windows(part_of(all, 8, 12), plan.model, true).mean;
  };
  int plans = 0;
  RobustOptions options;
  options.layer_done = [&] { ++plans; };
  const RobustPlan chosen = plan_robust(part_of(all, 0, 8), kFewSpares, weighted, options).value();
  EXPECT_EQ(chosen.scores.size(), 7u);
  EXPECT_EQ(name_of(chosen.scores[1].method), "plain");
  EXPECT_EQ(plans, num_layer_plans(part_of(all, 0, 8), Split::kWeighted, options));
  const double plain = later({.method = RobustMethod{Kind::kPlain}});
  EXPECT_LE(later({}), plain + 0.01);
  // With equal split there is nothing to tell it from the sum.
  const auto plan_of = [&](Kind kind) {
    return plan_robust(all, kFewSpares, {}, {.method = RobustMethod{kind}}).value().model;
  };
  EXPECT_EQ(plan_of(Kind::kPlain).placement.layers, plan_of(Kind::kSum).placement.layers);
}

TEST(PlanRobust, IsDeterministic) {
  const WindowedLoad load = taking_turns(6);
  const RobustPlan first = plan_robust(load, kShape, {.split = Split::kWeighted}, {}).value();
  const RobustPlan again = plan_robust(load, kShape, {.split = Split::kWeighted}, {}).value();
  EXPECT_EQ(first.model.placement.layers, again.model.placement.layers);
  EXPECT_EQ(first.model.shares, again.model.shares);
}

// Shares that fit the mean load alone would be better for it and worse for its windows.
TEST(PlanRobust, WeightedSharesServeTheWindows) {
  const WindowedLoad load = taking_turns(6);
  for (const Kind kind : {Kind::kWindows, Kind::kCounts}) {
    const RobustOptions options{.method = RobustMethod{kind}};
    PlannedModel model =
        plan_robust(load, kShape, {.split = Split::kWeighted}, options).value().model;
    const double own = figures_in_windows(load, model, false).mean;
    EXPECT_LE(figures_in_windows(load, model, true).mean, own);
    for (auto& [layer, shares] : model.shares) {
      shares = equal_shares(model.placement.layers.at(layer));
    }
    EXPECT_LT(own, figures_in_windows(load, model, false).mean);
    for (size_t i = 0; i < load.layers.size(); ++i) {
      const int layer = load.layers[i];
      model.shares[layer] =
          resplit(model.placement.layers.at(layer), expected_load(load.load[i], {Kind::kMean}));
    }
    EXPECT_LT(own, figures_in_windows(load, model, false).mean);
  }
}

// What was chosen is judged by windows that no plan was made from.
TEST(PlanRobust, AutoIsNotWorseThanTheSumOnWindowsToCome) {
  const WindowedLoad all = taking_turns(12);
  for (const Split split : {Split::kEqual, Split::kWeighted}) {
    const bool resplit = split == Split::kWeighted;
    const auto later = [&](const RobustOptions& options) {
      const auto plan = plan_robust(part_of(all, 0, 8), kShape, {.split = split}, options).value();
      return figures_in_windows(part_of(all, 8, 12), plan.model, resplit).mean;
    };
    EXPECT_LE(later({}), later({.method = RobustMethod{}}) + 0.01);
  }
}

TEST(PlanRobust, ASingleWindow) {
  const WindowedLoad load = taking_turns(1);
  const RobustPlan plan = plan_robust(load, kShape, {}, {}).value();
  EXPECT_EQ(name_of(plan.method), "sum");
  EXPECT_TRUE(plan.scores.empty());
  const auto refused = plan_robust(load, kShape, {}, {.method = RobustMethod{Kind::kWindows}});
  EXPECT_THAT(refused.status().message(), HasSubstr("at least 2 windows of load, found 1"));
}

TEST(FiguresInWindows, MeanDeviationAndWorstOverWindows) {
  WindowedLoad load{.num_experts = 2, .layers = {0}, .load = {{{1, 1}, {3, 1}, {0, 0}}}};
  PlannedModel model;
  model.placement.layers[0] = {2, 2, {0, 1}};
  model.shares[0] = {1.0, 1.0};
  const WindowFigures figures = figures_in_windows(load, model, false);  // 0, 0.5, 0
  EXPECT_NEAR(figures.mean, 0.5 / 3, 1e-12);
  EXPECT_NEAR(figures.std, std::sqrt(0.25 / 3 - 0.25 / 9), 1e-12);
  EXPECT_NEAR(figures.worst, 0.5, 1e-12);
  EXPECT_NEAR(figures_in_windows(load, model, false, 3).worst, 1.25, 1e-12);  // a third is idle
}

}  // namespace
}  // namespace wideep::balance
