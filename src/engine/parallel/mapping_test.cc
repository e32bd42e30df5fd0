// SPDX-License-Identifier: Apache-2.0
//
// Ranks and groups are worked out by hand from TRT's order, in layouts where another order of the
// axes would give other groups. Sizes that contradict each other must be refused with both
// products. A failure means that a file written for TensorRT-LLM puts layers or experts on other
// ranks than it does there.
#include "parallel/mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Mapping mapping(const ParallelSizes& sizes) {
  Result<Mapping> result = Mapping::create(sizes);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *std::move(result);
}

std::string refusal(const ParallelSizes& sizes) {
  const Result<Mapping> result = Mapping::create(sizes);
  return result.ok() ? "accepted" : result.status().message();
}

TEST(Mapping, FillsUnsetSizes) {
  EXPECT_EQ(mapping({.tp = 8}).sizes().moe_tp, 8);
  EXPECT_EQ(mapping({.tp = 8}).sizes().moe_ep, 1);
  EXPECT_EQ(mapping({.tp = 8}).sizes().moe_cluster, 1);
  EXPECT_EQ(mapping({.tp = 8, .moe_tp = 2}).sizes().moe_ep, 4);
  EXPECT_EQ(mapping({.tp = 8, .moe_ep = 8}).sizes().moe_tp, 1);
  EXPECT_EQ(mapping({.tp = 8, .moe_cluster = 4}).sizes().moe_tp, 2);
}

TEST(Mapping, RefusesContradictions) {
  EXPECT_THAT(refusal({.tp = 8, .moe_tp = 2, .moe_ep = 2}),
              HasSubstr("= 4, expected tensor_parallel_size 8"));
  EXPECT_THAT(refusal({.tp = 8, .moe_ep = 3}), HasSubstr("= 6, expected tensor_parallel_size 8"));
  EXPECT_THAT(refusal({.tp = 2, .moe_ep = 4}), HasSubstr("= 4, expected tensor_parallel_size 2"));
  EXPECT_THAT(refusal({.tp = 8, .moe_tp = 1, .moe_ep = 4, .moe_cluster = 2}),
              HasSubstr("moe_cluster_parallel_size 2 needs moe_expert_parallel_size 1, found 4"));
  EXPECT_THAT(refusal({.tp = 0}), HasSubstr("tensor_parallel_size: expected 1 to 65536, found 0"));
  EXPECT_THAT(refusal({.pp = -2}), HasSubstr("pipeline_parallel_size"));
  EXPECT_THAT(refusal({.tp = 4, .moe_ep = 0}), HasSubstr("moe_expert_parallel_size"));
}

// tp 2, cp 2, pp 3: rank 7 = (1 · 2 + 1) · 2 + 1.
TEST(Mapping, OrdersPpOutermostAndTpInnermost) {
  const Mapping m = mapping({.tp = 2, .pp = 3, .cp = 2});
  EXPECT_EQ(m.world_size(), 12);
  EXPECT_EQ(m.coordinates(7).tp_rank, 1);
  EXPECT_EQ(m.coordinates(7).cp_rank, 1);
  EXPECT_EQ(m.coordinates(7).pp_rank, 1);
  EXPECT_EQ(m.coordinates(10).tp_rank, 0);
  EXPECT_EQ(m.coordinates(10).cp_rank, 1);
  EXPECT_EQ(m.coordinates(10).pp_rank, 2);
  EXPECT_THAT(m.group(Axis::kTp, 7), ElementsAre(6, 7));
  EXPECT_THAT(m.group(Axis::kCp, 7), ElementsAre(5, 7));
  EXPECT_THAT(m.group(Axis::kPp, 7), ElementsAre(3, 7, 11));
  EXPECT_EQ(m.stage_size(), 4);
  EXPECT_THAT(m.stage(7), ElementsAre(4, 5, 6, 7));
}

TEST(Mapping, MoeEpGroupsAreContiguousAndMoeTpGroupsStride) {
  const Mapping m = mapping({.tp = 8, .moe_tp = 2, .moe_ep = 4});
  EXPECT_EQ(m.coordinates(6).moe_tp_rank, 1);
  EXPECT_EQ(m.coordinates(6).moe_ep_rank, 2);
  EXPECT_THAT(m.group(Axis::kMoeTp, 0), ElementsAre(0, 4));
  EXPECT_THAT(m.group(Axis::kMoeTp, 5), ElementsAre(1, 5));
  EXPECT_THAT(m.group(Axis::kMoeEp, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(m.group(Axis::kMoeEp, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(m.group(Axis::kTp, 6), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Mapping, MoeGroupsStayInTheirPipelineStage) {
  const Mapping m = mapping({.tp = 4, .pp = 2, .moe_tp = 2, .moe_ep = 2});
  EXPECT_THAT(m.group(Axis::kMoeEp, 6), ElementsAre(6, 7));
  EXPECT_THAT(m.group(Axis::kMoeTp, 6), ElementsAre(4, 6));
}

TEST(Mapping, ClustersDivideMoeTp) {
  const Mapping m = mapping({.tp = 8, .moe_tp = 2, .moe_cluster = 4});
  EXPECT_EQ(m.coordinates(6).moe_tp_rank, 1);
  EXPECT_EQ(m.coordinates(6).moe_cluster_rank, 2);
  EXPECT_THAT(m.group(Axis::kMoeCluster, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(m.group(Axis::kMoeTp, 6), ElementsAre(2, 6));
}

TEST(Mapping, WideEpHasEveryRankInOneGroup) {
  const Mapping m = mapping({.tp = 3, .moe_ep = 3});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(m.coordinates(rank).moe_ep_rank, rank);
    EXPECT_THAT(m.group(Axis::kMoeEp, rank), ElementsAre(0, 1, 2));
    EXPECT_THAT(m.group(Axis::kMoeTp, rank), ElementsAre(rank));
  }
}

// 61 = 16 + 15 + 15 + 15.
TEST(Mapping, DividesLayersAmongPipelineStages) {
  EXPECT_EQ(layers_of_stage(0, 4, 61), (LayerRange{0, 16}));
  EXPECT_EQ(layers_of_stage(1, 4, 61), (LayerRange{16, 31}));
  EXPECT_EQ(layers_of_stage(3, 4, 61), (LayerRange{46, 61}));
  EXPECT_EQ(layers_of_stage(3, 4, 3), (LayerRange{3, 3}));
}

}  // namespace
}  // namespace wideep::parallel
