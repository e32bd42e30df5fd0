// SPDX-License-Identifier: Apache-2.0
//
// What ranks count, where ranks die and return: a counter of Prometheus must not fall, or its rate
// shows what never was.
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, WhatARankHasCountedStaysWhenItDies) {
  Metrics metrics;
  metrics.take({.max_pages = 8, .evicted_pages = 10, .pauses = 4});
  metrics.take({.max_pages = 8, .evicted_pages = 14, .pauses = 5});
  metrics.take({.max_pages = 6, .evicted_pages = 9, .pauses = 2});  // without a rank
  metrics.take({.max_pages = 6, .evicted_pages = 10, .pauses = 2});
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_evictions_total 15\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_pauses_total 5\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_pages 6\n"));
}

// As in a serving process that follows a dead one: ranks go on counting from their start.
TEST(Metrics, WhatRanksCountedForADeadProcessIsNotCountedAgain) {
  Metrics metrics;
  metrics.go_on();
  metrics.take({.max_pages = 8, .evicted_pages = 1000, .pauses = 40});
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_evictions_total 0\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_pages 8\n"));
  metrics.take({.max_pages = 8, .evicted_pages = 1004, .pauses = 41});
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_evictions_total 4\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_pauses_total 1\n"));
}

TEST(Metrics, NothingRunsWhereNoAnswerDoes) {
  Metrics metrics;
  metrics.take({.running = 2, .cache_pages = 3, .kept_pages = 1, .max_pages = 8});
  metrics.running = 2;
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_cache_utilization 0.375\n"));
  metrics.running = 0;
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_cache_utilization 0\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("\nwideep_kv_pages_kept 4\n"));
}

TEST(Metrics, SpeculationHasVllmsNamesOnce) {
  Metrics metrics;
  metrics.speculates = true;
  metrics.speculation.drafts = 3;
  EXPECT_THAT(metrics.text(), HasSubstr("\nvllm:spec_decode_num_drafts_total 3\n"));
  EXPECT_EQ(metrics.vllm_text(), "");
  metrics.vllm.emplace("m", 60);
  metrics.take({.running = 2, .waiting = 1, .cache_pages = 3, .max_pages = 12});
  EXPECT_THAT(metrics.text(), Not(HasSubstr("vllm:")));
  EXPECT_THAT(metrics.vllm_text(),
              HasSubstr("\nvllm:spec_decode_num_drafts_total{" + metrics.vllm->labels() + "} 3\n"));
  const std::string all = "{" + metrics.vllm->labels() + "} ";
  EXPECT_THAT(metrics.vllm_text(),
              HasSubstr("\nvllm:external_prefix_cache_queries_total" + all + "0\n"));
  metrics.computed_prompt_tokens = 70;
  const std::string with_places = metrics.vllm_text(128);
  EXPECT_THAT(with_places, HasSubstr("\nvllm:external_prefix_cache_queries_total" + all + "198\n"));
  EXPECT_THAT(with_places, HasSubstr("\nvllm:external_prefix_cache_hits_total" + all + "128\n"));
  EXPECT_THAT(metrics.vllm_text(), HasSubstr("\nvllm:kv_cache_usage_perc" + all + "0\n"));
  metrics.running = 3;
  EXPECT_THAT(metrics.vllm_text(), HasSubstr("\nvllm:kv_cache_usage_perc" + all + "0.25\n"));
  EXPECT_THAT(metrics.vllm_text(), HasSubstr("\nvllm:num_requests_waiting" + all + "1\n"));
}

}  // namespace
}  // namespace wideep::server
