// SPDX-License-Identifier: Apache-2.0
//
// Lines that a dashboard made for vLLM asks for, with values that follow from what was added.
#include "server/vllm_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kLabels = R"(model_name="m \"1\"",engine="0")";

std::string line(const std::string& name, const std::string& more, const std::string& value) {
  return "\n" + name + "{" + kLabels + more + "} " + value + "\n";
}

TEST(VllmMetrics, HaveItsNamesLabelsAndBuckets) {
  VllmMetrics metrics("m \"1\"", 60);
  metrics.first_token(0.03);
  metrics.next_token(0.02);
  metrics.ended({.reason = engine::FinishReason::kLength,
                 .prompt_tokens = 12,
                 .generated_tokens = 3,
                 .cached_tokens = 2,
                 .max_tokens = 3,
                 .begun = 0.25,
                 .first = 1.25,
                 .last = 3.25});
  metrics.ended({.prompt_tokens = 50,
                 .generated_tokens = 1,
                 .max_tokens = 4,
                 .begun = {},
                 .first = 4,
                 .last = 4});
  metrics.request_ended(2, 3);
  metrics.request_ended(1, 1);
  metrics.iteration(9);
  const std::string text = "\n" + metrics.text({.running = 2,
                                                .waiting = 1,
                                                .kv_share = 0.25,
                                                .pauses = 6,
                                                .prompt_tokens = 62,
                                                .cached_prompt_tokens = 16,
                                                .generated_tokens = 4,
                                                .cancelled = 5});
  const std::string expected[] = {
      line("vllm:num_requests_running", "", "2"),
      line("vllm:num_requests_waiting", "", "1"),
      line("vllm:kv_cache_usage_perc", "", "0.25"),
      line("vllm:prefix_cache_queries_total", "", "62"),
      line("vllm:prefix_cache_hits_total", "", "16"),
      line("vllm:num_preemptions_total", "", "6"),
      line("vllm:num_requests_waiting_by_reason", ",reason=\"capacity\"", "1"),
      line("vllm:prompt_tokens_cached_total", "", "16"),
      line("vllm:prompt_tokens_by_source_total", ",source=\"local_compute\"", "46"),
      line("vllm:generation_tokens_total", "", "4"),
      line("vllm:request_success_total", ",finished_reason=\"stop\"", "1"),
      line("vllm:request_success_total", ",finished_reason=\"length\"", "1"),
      line("vllm:request_success_total", ",finished_reason=\"abort\"", "5"),
      line("vllm:time_to_first_token_seconds_bucket", ",le=\"0.02\"", "0"),
      line("vllm:time_to_first_token_seconds_bucket", ",le=\"0.04\"", "1"),
      line("vllm:time_to_first_token_seconds_bucket", ",le=\"2560.0\"", "1"),
      line("vllm:inter_token_latency_seconds_bucket", ",le=\"0.025\"", "1"),
      line("vllm:time_per_output_token_seconds_count", "", "1"),
      line("vllm:e2e_request_latency_seconds_sum", "", "7.25"),
      line("vllm:request_queue_time_seconds_count", "", "1"),
      line("vllm:request_queue_time_seconds_sum", "", "0.25"),
      line("vllm:request_prefill_time_seconds_sum", "", "1"),
      line("vllm:request_decode_time_seconds_sum", "", "2"),
      line("vllm:request_inference_time_seconds_sum", "", "3"),
      line("vllm:request_prompt_tokens_bucket", ",le=\"10.0\"", "0"),
      line("vllm:request_prompt_tokens_bucket", ",le=\"50.0\"", "2"),
      line("vllm:request_generation_tokens_sum", "", "4"),
      line("vllm:request_params_n_bucket", ",le=\"1.0\"", "1"),
      line("vllm:request_params_max_tokens_sum", "", "7"),
      line("vllm:request_prefill_kv_computed_tokens_sum", "", "60"),
      line("vllm:request_time_per_output_token_seconds_count", "", "2"),
      line("vllm:request_time_per_output_token_seconds_sum", "", "1"),
      line("vllm:request_max_num_generation_tokens_sum", "", "4"),
      line("vllm:iteration_tokens_total_bucket", ",le=\"8.0\"", "0"),
      line("vllm:iteration_tokens_total_bucket", ",le=\"16.0\"", "1"),
  };
  for (const std::string& each : expected) EXPECT_THAT(text, HasSubstr(each));
  EXPECT_THAT(text, Not(HasSubstr("le=\"100.0\"} ")));  // more than the context has
}

}  // namespace
}  // namespace wideep::server
