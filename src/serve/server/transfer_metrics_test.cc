// SPDX-License-Identifier: Apache-2.0
#include "server/transfer_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;

TEST(TransferMetricsTest, CountWhatCameAndWhatDidNot) {
  TransferMetrics metrics;
  metrics.add({.known_pages = 0,
               .fetched_pages = 40,
               .from_peer = {.pages = 40,
                             .bytes = 3 << 20,
                             .seconds = 0.25,
                             .transfer_seconds = 0.1875,
                             .exposed_seconds = 0.0625,
                             .trouble = ""}});
  metrics.add({.from_peer = {.pages = 2, .bytes = 1 << 10, .seconds = 0.5, .trouble = "gone"}});
  metrics.add({.from_peer = {.trouble = "nobody listens there"}});
  metrics.add({.known_pages = 40, .from_peer = {.trouble = ""}});  // nothing was wanted
  store::PageServerCounts given;
  given.records = 7;
  const std::string text = metrics.text(given);
  for (const char* line : {"wideep_prompt_transfers_total{outcome=\"whole\"} 1\n",
                           "wideep_prompt_transfers_total{outcome=\"part\"} 1\n",
                           "wideep_prompt_transfers_total{outcome=\"none\"} 1\n",
                           "\nwideep_prompt_transfer_pages_total 42\n",
                           "\nwideep_prompt_transfer_bytes_total 3146752\n",
                           "\nwideep_prompt_transfer_seconds_count 2\n",
                           "\nwideep_prompt_transfer_hidden_seconds_total 0.125",
                           "\nwideep_prompt_transfer_not_hidden_seconds_total 0.0625",
                           "\nwideep_pages_given_total 7\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// Of which a router predicts what the way takes.
TEST(TransferMetricsTest, LateTransfersCountMore) {
  double now = 1000.0;
  TransferMetrics metrics([&now] { return now; });
  EXPECT_FALSE(metrics.pages_per_second());
  const auto add = [&](int pages, double seconds) {
    metrics.add({.from_peer = {.pages = pages, .transfer_seconds = seconds, .trouble = ""}});
  };
  add(0, 1.0);  // nothing came
  EXPECT_FALSE(metrics.pages_per_second());
  add(100, 0.5);
  EXPECT_EQ(metrics.pages_per_second(), 200.0);
  for (int i = 0; i < 100; ++i) add(100, 2.0);
  EXPECT_NEAR(*metrics.pages_per_second(), 50.0, 0.1);
  now += 59.0;
  EXPECT_TRUE(metrics.pages_per_second());
  now += 2.0;
  EXPECT_FALSE(metrics.pages_per_second());
  add(100, 1.0);
  EXPECT_TRUE(metrics.pages_per_second());
}

// Its buckets, to the last digit.
TEST(TransferMetricsTest, MayHaveTheNamesOfVllm) {
  TransferMetrics metrics;
  metrics.add(
      {.from_peer = {
           .pages = 1, .bytes = 2048, .seconds = 7.0, .transfer_seconds = 0.003, .trouble = ""}});
  metrics.add({.from_peer = {.trouble = "nobody listens there"}});
  const std::string text = metrics.vllm_text("engine=\"0\"");
  for (const char* line :
       {"\nvllm:nixl_xfer_time_seconds_bucket{engine=\"0\",le=\"0.005\"} 1\n",
        "\nvllm:nixl_xfer_time_seconds_bucket{engine=\"0\",le=\"5.0\"} 1\n",
        "\nvllm:nixl_bytes_transferred_bucket{engine=\"0\",le=\"2048.0\"} 1\n",
        "\nvllm:nixl_bytes_transferred_bucket{engine=\"0\",le=\"8.589934592e+09\"} 1\n",
        "\nvllm:nixl_num_failed_transfers_total{engine=\"0\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace wideep::server
