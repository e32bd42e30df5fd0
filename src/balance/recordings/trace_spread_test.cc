// SPDX-License-Identifier: Apache-2.0
#include "recordings/trace_spread.h"

#include <gtest/gtest.h>

#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::recordings {
namespace {

using balance::equal_shares;
using balance::mean_spread;
using balance::Placement;
using balance::PlannedModel;

TEST(TokenSpread, MeasuresAPartOfATrace) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("a.u8");
  const std::string ids = {0, 1, 0, 2,   // token 0: two layers
                           0, 2, 1, 3,   // token 1
                           0, 3, 0, 1};  // token 2
  ASSERT_TRUE(formats::write_file(path, ids).ok());
  const Placement placement{.num_experts = 4, .ep_size = 2, .slot_to_expert = {0, 1, 2, 3}};
  PlannedModel plan;
  for (const int layer : {5, 6}) {
    plan.placement.layers[layer] = placement;
    plan.shares[layer] = equal_shares(placement);
  }
  const TraceShape shape{.num_layers = 2, .top_k = 2, .num_experts = 4, .first_layer = 5};
  const auto all = measure_spread({.path = path, .shape = shape}, plan);
  const auto later = measure_spread({.path = path, .shape = shape, .begin = 1, .end = 3}, plan);
  ASSERT_TRUE(all.ok() && later.ok());
  EXPECT_NEAR((*all)[0].ranks_by_shares, 5.0 / 3.0, 1e-12);
  EXPECT_DOUBLE_EQ((*later)[0].ranks_by_shares, 2.0);
  EXPECT_DOUBLE_EQ((*later)[1].ranks_by_cover, 1.5);
  EXPECT_DOUBLE_EQ(mean_spread(*later).within_rank_ratio, 0.25);
}

}  // namespace
}  // namespace wideep::recordings
