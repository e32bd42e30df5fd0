// SPDX-License-Identifier: Apache-2.0
#include "run/thread_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Four cores of two hardware threads; processors i and i + 4 are one core.
base::Machine four_cores() {
  base::Machine machine;
  machine.topology.cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  machine.allowed = {0, 1, 2, 3, 4, 5, 6, 7};
  return machine;
}

TEST(ThreadPlan, RanksThatFillTheMachineGetTheirOwnCores) {
  const ThreadPlan plan = plan_threads(four_cores(), 2, 0);
  EXPECT_EQ(plan.threads_per_rank, 2);
  EXPECT_TRUE(plan.spin);
  EXPECT_THAT(plan.processors, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(plan.of_rank(1).processors, ElementsAre(2, 3));
}

TEST(ThreadPlan, WithFreeCoresNoThreadIsBound) {
  const ThreadPlan plan = plan_threads(four_cores(), 1, 3);
  EXPECT_EQ(plan.threads_per_rank, 3);
  EXPECT_TRUE(plan.spin);
  EXPECT_THAT(plan.processors, IsEmpty());
}

TEST(ThreadPlan, MoreThreadsThanCoresSleepInsteadOfSpinning) {
  const ThreadPlan plan = plan_threads(four_cores(), 16, 0);
  EXPECT_EQ(plan.threads_per_rank, 1);
  EXPECT_FALSE(plan.spin);
  EXPECT_THAT(plan.of_rank(7).processors, IsEmpty());
}

TEST(ThreadPlan, OnlyAllowedProcessorsCount) {
  base::Machine machine = four_cores();
  machine.allowed = {5, 2};
  const ThreadPlan plan = plan_threads(machine, 1, 0);
  EXPECT_THAT(plan.processors, ElementsAre(ElementsAre(5, 2)));
  machine.control_group.cpus = 1.5;  // processor time for one core only: which one may change
  EXPECT_THAT(plan_threads(machine, 1, 0).processors, IsEmpty());
}

}  // namespace
}  // namespace wideep::run
