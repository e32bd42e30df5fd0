// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are late, silent or dead: whoever survives knows whom to blame within its deadline.
#include "transport/faulty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cpu_time.h"
#include "base/try.h"
#include "group/rank_processes.h"

namespace wideep::transport {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr int kRanks = 4;

Status many_barriers(Endpoint& endpoint) {
  for (int i = 0; i < 6; ++i) {
    WIDEEP_TRY(endpoint.barrier({.what = "everybody", .iteration = i}));
  }
  return {};
}

GroupOptions group(const Fault& fault, milliseconds timeout) {
  return {.num_ranks = kRanks, .segment_bytes = 64, .timeout = timeout, .faults = {fault}};
}

TEST(Faulty, OthersWaitForALateRank) {
  const Fault late{
      .rank = 2, .kind = Fault::Kind::kDelay, .after_raises = 1, .delay = milliseconds(5)};
  const int64_t start_ns = base::wall_ns();
  const auto statuses = run_rank_threads(group(late, milliseconds(10'000)), many_barriers);
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GE(base::wall_ns() - start_ns, 5 * 5'000'000);
}

TEST(Faulty, AllRanksNameASilentRank) {
  for (const int after_raises : {0, 3}) {
    const Fault silent{.rank = 1, .kind = Fault::Kind::kSilence, .after_raises = after_raises};
    const auto statuses = run_rank_threads(group(silent, milliseconds(60)), many_barriers);
    ASSERT_TRUE(statuses.ok());
    for (const Status& status : *statuses) {
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(), HasSubstr("for everybody from rank 1, iteration " +
                                              std::to_string(after_raises)));
    }
  }
}

TEST(Faulty, TheFaultAppliesToEveryGroup) {
  const Fault silent{.rank = 1, .kind = Fault::Kind::kSilence, .after_raises = 3};
  const auto statuses = run_rank_threads(group(silent, milliseconds(60)), [](Endpoint& world) {
    Endpoint all(world, Group::kStage, {3, 2, 1, 0});
    WIDEEP_TRY(world.barrier({.what = "the world"}));
    return many_barriers(all);
  });
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) {
    EXPECT_THAT(status.message(), HasSubstr("for everybody from rank 1, iteration 2"));
  }
}

TEST(Faulty, ADeadRankIsReportedBeforeTheDeadline) {
  const Fault dead{.rank = 3, .kind = Fault::Kind::kKill, .after_raises = 2};
  const int64_t start_ns = base::wall_ns();
  const Status status = run_rank_processes(
      group(dead, milliseconds(60'000)),
      [](Endpoint& endpoint, const Messenger&) { return many_barriers(endpoint); },
      [](int, std::string_view) {});
  EXPECT_THAT(status.message(), HasSubstr("rank 3"));
  EXPECT_THAT(status.message(), HasSubstr("signal 9"));
  EXPECT_LT(base::wall_ns() - start_ns, 30'000'000'000);
}

}  // namespace
}  // namespace wideep::transport
