// SPDX-License-Identifier: Apache-2.0
#include "wideep/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

using ::testing::HasSubstr;

constexpr wideep_plan_shape kShape = {
    .num_experts = 6, .ep_size = 3, .num_slots = 9, .num_nodes = 0, .num_groups = 0};

std::vector<double> some_load() { return {60, 1, 5, 9, 12, 3}; }

struct Planner {
  explicit Planner(const char* name, int split = WIDEEP_SPLIT_EQUAL) {
    EXPECT_EQ(wideep_planner_create(name, &kShape, split, &planner), WIDEEP_OK)
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

TEST(CApi, BadInputIsExplainedAndLeavesOutputsAlone) {
  wideep_planner* planner = nullptr;
  wideep_plan_shape shape = kShape;
  shape.num_slots = 10;
  EXPECT_EQ(wideep_planner_create("wideep", &shape, 0, &planner), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("10"));
  EXPECT_EQ(wideep_planner_create("best", &kShape, 0, &planner), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("wideep, trt, deepseek"));
  EXPECT_EQ(wideep_planner_create("wideep", &kShape, 2, &planner), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("found 2"));
  EXPECT_EQ(wideep_planner_create(nullptr, &kShape, 0, &planner), WIDEEP_INVALID_INPUT);
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
