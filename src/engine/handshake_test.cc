// SPDX-License-Identifier: Apache-2.0
#include "engine/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/rank_threads.h"

namespace wideep::engine {
namespace {

std::vector<Status> meet(int odd_rank, SharedSetting setting, uint64_t value) {
  return transport::run_rank_threads({.num_ranks = 3, .segment_bytes = 64},
                                     [&](transport::Endpoint& endpoint) {
                                       SettingWords words = {1, 2, 3, 4, 5, 512, 7, 8};
                                       if (endpoint.rank() == odd_rank) {
                                         words[static_cast<size_t>(setting)] = value;
                                       }
                                       return shake_hands(words, endpoint);
                                     })
      .value();
}

TEST(Handshake, EqualSettingsPass) {
  for (const Status& status : meet(0, SharedSetting::kMaxNumTokens, 512)) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Handshake, EveryRankNamesWhatDiffersAndWhose) {
  for (const Status& status : meet(2, SharedSetting::kMaxNumTokens, 256)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
    EXPECT_THAT(status.message(), testing::HasSubstr("ranks 0 and 2 differ in max_num_tokens"));
  }
  for (const Status& status : meet(1, SharedSetting::kPlacement, 9)) {
    EXPECT_THAT(status.message(), testing::HasSubstr("ranks 0 and 1 differ in the placement"));
  }
  for (const Status& status : meet(1, SharedSetting::kRows, 9)) {
    EXPECT_THAT(status.message(), testing::HasSubstr("moe_config.dispatch_dtype, combine_dtype"));
  }
}

}  // namespace
}  // namespace wideep::engine
