// SPDX-License-Identifier: Apache-2.0
//
// Names, labels and buckets are those of vllm/v1/metrics/loggers.py: histograms of several engines
// add up only if their buckets are the same to the last one. Two have older names beside the present
// ones, as dashboards for older versions ask for those.
#include "server/vllm_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

std::vector<double> of_first_tokens() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}

std::vector<double> of_tokens() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
}

std::vector<double> of_requests() {
  return {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
}

// 1, 2, 5, 10, 20, 50, … up to max.
std::vector<double> steps_to(int max) {
  std::vector<double> bounds;
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t each : {1, 2, 5}) {
      if (each * power > max) return bounds;
      bounds.push_back(static_cast<double>(each * power));
    }
  }
}

std::vector<double> of_iterations() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

}  // namespace

VllmMetrics::VllmMetrics(std::string model, int max_sequence)
    : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", label_text(model))),
      time_to_first_(of_first_tokens()),
      inter_token_(of_tokens()),
      per_token_(of_tokens()),
      end_to_end_(of_requests()),
      queue_(of_requests()),
      inference_(of_requests()),
      prefill_(of_requests()),
      decode_(of_requests()),
      prompt_tokens_(steps_to(max_sequence)),
      computed_tokens_(steps_to(max_sequence)),
      generated_tokens_(steps_to(max_sequence)),
      longest_(steps_to(max_sequence)),
      n_({1, 2, 5, 10, 20}),
      max_tokens_(steps_to(max_sequence)),
      iteration_tokens_(of_iterations()) {}

void VllmMetrics::ended(const EndedAnswer& answer) {
  ++(answer.reason == engine::FinishReason::kLength ? at_length_ : stopped_);
  prompt_tokens_.add(static_cast<double>(answer.prompt_tokens));
  computed_tokens_.add(static_cast<double>(answer.prompt_tokens - answer.cached_tokens));
  generated_tokens_.add(static_cast<double>(answer.generated_tokens));
  max_tokens_.add(static_cast<double>(answer.max_tokens));
  end_to_end_.add(answer.last);
  if (answer.first) {
    const double decode = answer.last - *answer.first;
    const int64_t later = answer.generated_tokens - 1;  // tokens that this time has yielded
    decode_.add(decode);
    per_token_.add(later > 0 ? decode / static_cast<double>(later) : 0.0);
  }
  if (!answer.begun) return;
  queue_.add(*answer.begun);
  inference_.add(answer.last - *answer.begun);
  if (answer.first) prefill_.add(*answer.first - *answer.begun);
}

void VllmMetrics::request_ended(int n, int64_t longest_answer) {
  n_.add(n);
  longest_.add(static_cast<double>(longest_answer));
}

std::string VllmMetrics::text(const Shared& all) const {
  std::string text;
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help,
                       auto value) {
    text += metric_head(name, type, help) + fmt::format("{}{{{}}} {}\n", name, labels_, value);
  };
  using Parts = std::initializer_list<std::pair<const char*, uint64_t>>;
  const auto by = [&](std::string_view name, std::string_view type, std::string_view help,
                      std::string_view label, Parts parts) {
    text += metric_head(name, type, help);
    for (const auto& [value, count] : parts) {
      text += fmt::format("{}{{{},{}=\"{}\"}} {}\n", name, labels_, label, value, count);
    }
  };
  one("vllm:num_requests_running", "gauge", "Answers that have a place in the KV cache.",
      all.running);
  one("vllm:num_requests_waiting", "gauge", "Answers that wait for a place.", all.waiting);
  by("vllm:num_requests_waiting_by_reason", "gauge", "The same, by why they wait.", "reason",
     {{"capacity", static_cast<uint64_t>(all.waiting)}, {"deferred", 0}});
  one("vllm:kv_cache_usage_perc", "gauge",
      "Share of the KV caches' pages that are used: 1 is 100 percent.", all.kv_share);
  one("vllm:gpu_cache_usage_perc", "gauge", "The same, by the name of older versions.",
      all.kv_share);
  one("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the KV cache.",
      all.prompt_tokens);
  one("vllm:prefix_cache_hits_total", "counter", "Those that were found.",
      all.cached_prompt_tokens);
  one("vllm:external_prefix_cache_queries_total", "counter",
      "Prompt tokens looked for in places beyond the KV cache.", all.external_queries);
  one("vllm:external_prefix_cache_hits_total", "counter",
      "Those that were fetched from there into the KV cache.", all.external_hits);
  one("vllm:num_preemptions_total", "counter", "Requests paused for want of pages.", all.pauses);
  one("vllm:prompt_tokens_total", "counter", "Tokens of prompts, for each answer to them.",
      all.prompt_tokens);
  one("vllm:prompt_tokens_cached_total", "counter", "Those that were found in the KV cache.",
      all.cached_prompt_tokens);
  by("vllm:prompt_tokens_by_source_total", "counter",
     "Tokens of prompts, by what has become of them.", "source",
     {{"local_compute", all.prompt_tokens - std::min(all.prompt_tokens, all.cached_prompt_tokens)},
      {"local_cache_hit", all.cached_prompt_tokens},
      {"external_kv_transfer", 0}});
  one("vllm:generation_tokens_total", "counter", "Tokens generated.", all.generated_tokens);
  by("vllm:request_success_total", "counter", "Answers that have ended, by why.", "finished_reason",
     {{"stop", stopped_}, {"length", at_length_}, {"abort", all.cancelled}});
  const auto histogram = [&](std::string_view name, const Histogram& values,
                             std::string_view help) {
    text += metric_head(name, "histogram", help) + values.text(name, labels_);
  };
  histogram("vllm:time_to_first_token_seconds", time_to_first_,
            "From the request to its first token.");
  histogram("vllm:inter_token_latency_seconds", inter_token_,
            "Between tokens of an answer from two steps.");
  histogram("vllm:time_per_output_token_seconds", inter_token_,
            "The same, by the name of older versions.");
  histogram("vllm:request_time_per_output_token_seconds", per_token_,
            "The mean of these times of an ended answer.");
  histogram("vllm:e2e_request_latency_seconds", end_to_end_, "From the request to its last token.");
  histogram("vllm:request_queue_time_seconds", queue_,
            "From the request until its prompt was begun.");
  histogram("vllm:request_inference_time_seconds", inference_, "From there to its last token.");
  histogram("vllm:request_prefill_time_seconds", prefill_, "From there to its first token.");
  histogram("vllm:request_decode_time_seconds", decode_, "From its first token to its last.");
  histogram("vllm:request_prompt_tokens", prompt_tokens_, "Tokens of prompts of ended answers.");
  histogram("vllm:request_prefill_kv_computed_tokens", computed_tokens_,
            "Those of them that were not found in the KV cache.");
  histogram("vllm:request_generation_tokens", generated_tokens_, "Tokens of ended answers.");
  histogram("vllm:request_max_num_generation_tokens", longest_,
            "Tokens of the longest answer to a request.");
  histogram("vllm:request_params_n", n_, "Answers that a request asks for.");
  histogram("vllm:request_params_max_tokens", max_tokens_,
            "Tokens that an ended answer might have had.");
  histogram("vllm:iteration_tokens_total", iteration_tokens_,
            "Tokens of an iteration, of prompts and generated.");
  return text;
}

}  // namespace wideep::server
