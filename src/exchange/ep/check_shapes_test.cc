// SPDX-License-Identifier: Apache-2.0
#include "ep/check_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/rank_threads.h"

namespace wideep::ep {
namespace {

TEST(CheckShapes, AllRanksNameTheDifference) {
  const DispatchShape shape{.ep_size = 3,
                            .num_experts = 6,
                            .slots_per_rank = 2,
                            .top_k = 2,
                            .row_bytes = 32,
                            .result_bytes = 32,
                            .max_tokens = 4};
  DispatchShape larger = shape;
  larger.max_tokens = 9;
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = 3, .segment_bytes = 4096}, [&](transport::Endpoint& endpoint) {
        return check_shapes_match(endpoint.rank() == 2 ? larger : shape, endpoint);
      });
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) {
    EXPECT_THAT(status.message(), testing::HasSubstr("max_tokens is 4 on rank 0 and 9 on rank 2"));
  }
}

}  // namespace
}  // namespace wideep::ep
