// SPDX-License-Identifier: Apache-2.0
#include "parallel/initial_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "formats/files.h"

namespace wideep::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ModelExperts kModel{.moe_layers = {1, 2}, .num_experts = 4};

Result<balance::ModelPlacement> placement_of(const std::string& load_balancer) {
  const Result<ParallelConfig> config = parse_parallel_config(
      "{tensor_parallel_size: 2, enable_attention_dp: true, moe_expert_parallel_size: 2, "
      "moe_config: {load_balancer: " +
          load_balancer + "}}",
      "config.yaml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return initial_placement(*config, kModel);
}

TEST(InitialPlacement, IsLinearWithoutLoadBalancer) {
  const Result<ParallelConfig> config = parallel_config_for_ranks(2);
  ASSERT_TRUE(config.ok());
  const auto placement = initial_placement(*config, kModel);
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(placement->num_slots, 4);
  ASSERT_EQ(placement->layers.size(), 2u);
  EXPECT_THAT(placement->layers.at(2).slot_to_expert, ElementsAre(0, 1, 2, 3));
}

TEST(InitialPlacement, SuggestsSlotsWhereExpertsDoNotDivide) {
  const Result<ParallelConfig> config = parallel_config_for_ranks(3);
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(initial_placement(*config, kModel).status().message(), HasSubstr("num_slots: 6"));
}

TEST(InitialPlacement, TakesInlineSettings) {
  const auto placement = placement_of(
      "{num_slots: 6, initial_global_assignments: {1: [0,1,2,3,3,3], 2: [3,2,1,0,0,0]}}");
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_THAT(placement->layers.at(2).slot_to_expert, ElementsAre(3, 2, 1, 0, 0, 0));
  EXPECT_THAT(placement_of("{num_slots: 5}").status().message(),
              HasSubstr("config.yaml: moe_config.load_balancer: num_slots"));
}

TEST(InitialPlacement, ReadsTheFile) {
  const std::string path = testing::TempDir() + "/initial_placement_test.yaml";
  ASSERT_TRUE(formats::write_file(path, "num_slots: 6\n").ok());
  const auto placement = placement_of(path);
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_THAT(placement->layers.at(1).slot_to_expert, ElementsAre(0, 1, 2, 2, 3, 0));
  std::filesystem::remove(path);
  EXPECT_THAT(placement_of(path).status().message(), HasSubstr(path));
}

TEST(InitialPlacement, KeepsTheOnlineBalancingSettings) {
  const auto placement = placement_of("{num_slots: 6, layer_updates_per_iter: 2}");
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(placement->layer_updates_per_iter, 2);
}

}  // namespace
}  // namespace wideep::parallel
