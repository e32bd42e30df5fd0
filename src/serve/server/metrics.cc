// SPDX-License-Identifier: Apache-2.0
//
// Counting is an addition; the text is made when somebody asks. Counters of speculation have vLLM's
// and TensorRT-LLM's names, so that dashboards made for those show them.
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

template <typename T>
std::string gauge(std::string_view name, std::string_view help, T value) {
  return metric(name, "gauge", help, value);
}

template <typename T>
std::string counter(std::string_view name, std::string_view help, T value) {
  return metric(name, "counter", help, value);
}

// Schedulers and KV caches of all ranks, at the start of the last iteration.
std::string queue_text(const Metrics& metrics) {
  const engine::QueueRecord all = metrics.queue_now();
  const double used = metrics.kv_share();
  return gauge("wideep_num_requests_running", "Answers that have a place in the KV cache.",
               all.running) +
         gauge("wideep_num_requests_waiting", "Answers that wait for a place.", all.waiting) +
         gauge("wideep_kv_cache_utilization", "Share of the KV caches' pages that are used.",
               used) +
         gauge("wideep_kv_pages", "Pages that the KV caches may have.", all.max_pages) +
         gauge("wideep_kv_pages_used", "Pages of running requests.", all.cache_pages) +
         gauge("wideep_kv_pages_kept", "Pages kept for requests with the same prefix.",
               all.kept_pages) +
         counter("wideep_kv_evictions_total", "Kept pages that were evicted.", metrics.evictions) +
         counter("wideep_pauses_total", "Requests paused for want of pages.", metrics.pauses);
}

std::string speculation_text(const run::SpeculationTotals& all) {
  return gauge("trtllm_spec_decode_acceptance_length", "Tokens of a step with a draft, on average.",
               all.acceptance_length()) +
         counter("wideep_spec_expected_tokens_total",
                 "Tokens expected of steps with chosen drafts.", all.expected_tokens) +
         counter("wideep_spec_tokens_total", "Tokens that those steps have yielded.", all.tokens) +
         counter("wideep_spec_expected_seconds_total", "Time expected of those steps.",
                 all.expected_seconds) +
         counter("wideep_spec_seconds_total", "Time that those steps have taken.", all.seconds) +
         gauge("wideep_spec_pool_bytes", "Memory of the drafters.", all.bytes) +
         gauge("wideep_spec_given_up", "Ranks that draft nothing any more.", all.given_up);
}

}  // namespace

// A rank counts from its start, so that a sum over ranks falls where one has died, or has come back:
// what the others have counted in that iteration is lost then.
void Metrics::take(const engine::QueueRecord& now) {
  if (std::exchange(goes_on_, false)) {
    queue = now;
    return;
  }
  evictions += static_cast<uint64_t>(std::max<int64_t>(0, now.evicted_pages - queue.evicted_pages));
  pauses += static_cast<uint64_t>(std::max<int64_t>(0, now.pauses - queue.pauses));
  queue = now;
}

// The ranks report with an iteration, and an idle engine has none: pages of the last requests are
// kept now.
engine::QueueRecord Metrics::queue_now() const {
  engine::QueueRecord all = queue;
  if (running > 0) return all;
  all.running = all.waiting = 0;
  all.kept_pages += std::exchange(all.cache_pages, 0);
  return all;
}

double Metrics::kv_share() const {
  const engine::QueueRecord all = queue_now();
  return all.max_pages > 0 ? static_cast<double>(all.cache_pages) / all.max_pages : 0.0;
}

std::string Metrics::vllm_text(std::optional<uint64_t> fetched) const {
  if (!vllm) return "";
  const engine::QueueRecord now = queue_now();
  return vllm->text({.running = now.running,
                     .waiting = now.waiting,
                     .kv_share = kv_share(),
                     .pauses = pauses,
                     .prompt_tokens = prompt_tokens,
                     .cached_prompt_tokens = cached_prompt_tokens,
                     .generated_tokens = generated_tokens,
                     .external_queries = fetched ? computed_prompt_tokens + *fetched : 0,
                     .external_hits = fetched.value_or(0),
                     .cancelled = cancelled}) +
         (speculates ? vllm_speculation(vllm->labels()) : "");
}

std::string Metrics::vllm_speculation(std::string_view labels) const {
  const std::string all = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  const auto total = [&](std::string_view name, std::string_view help, int64_t value) {
    return metric_head(name, "counter", help) + fmt::format("{}{} {}\n", name, all, value);
  };
  std::string text =
      total("vllm:spec_decode_num_drafts_total", "Steps of requests with draft tokens.",
            speculation.drafts) +
      total("vllm:spec_decode_num_draft_tokens_total", "Draft tokens.", speculation.drafted) +
      total("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that were right.",
            speculation.accepted);
  constexpr const char* kByPlace = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  text += metric_head(kByPlace, "counter",
                      "Draft tokens that were right, by their place in the draft.");
  for (size_t i = 0; i < speculation.accepted_at.size(); ++i) {
    text += fmt::format("{}{{{}{}position=\"{}\"}} {}\n", kByPlace, labels,
                        labels.empty() ? "" : ",", i, speculation.accepted_at[i]);
  }
  return text;
}

std::string Metrics::text() const {
  std::string text =
      metric_head("wideep_replies_total", "counter", "Replies by path and HTTP status.");
  for (const auto& [what, count] : replies) {
    text += fmt::format("wideep_replies_total{{path=\"{}\",status=\"{}\"}} {}\n", what.first,
                        what.second, count);
  }
  text +=
      metric_head("wideep_answers_running", "gauge", "Answers that are being generated or wait.");
  text += fmt::format("wideep_answers_running {}\n", running);
  text += gauge("wideep_draining", "1: requests are refused for now (POST /drain, SIGHUP).",
                draining ? 1 : 0);
  text += counter("wideep_answers_cancelled_total", "Answers whose client has left.", cancelled);
  text += counter("wideep_prompt_tokens_total", "Tokens of prompts, for each answer to them.",
                  prompt_tokens);
  text += counter("wideep_cached_prompt_tokens_total",
                  "Prompt tokens that were found in the KV cache.", cached_prompt_tokens);
  text += counter("wideep_cached_prompts_total", "Answers whose prompt had cached tokens.",
                  cached_prompts);
  text += counter("wideep_generated_tokens_total", "Tokens generated.", generated_tokens);
  text += counter("wideep_disaggregated_first_token_differs_total",
                  "Answers that begin otherwise than where another server has computed the prompt.",
                  differing_first_tokens);
  const auto histogram = [&](std::string_view name, const Histogram& values, const char* help) {
    text += metric_head(name, "histogram", help) + values.text(name);
  };
  histogram("wideep_time_to_first_token_seconds", time_to_first_token,
            "From the request to its first token.");
  histogram("wideep_inter_token_seconds", inter_token,
            "Between tokens of an answer from two steps.");
  histogram("wideep_end_to_end_seconds", end_to_end, "From the request to its last token.");
  text += counter("wideep_iterations_total", "Iterations of the engine.", iterations);
  text += counter("wideep_iteration_seconds_total", "Time in iterations.", iteration_seconds);
  text += queue_text(*this);
  if (speculates && !vllm) text += vllm_speculation("");
  if (speculates) text += speculation_text(speculation);
  text += counter("wideep_ep_rebalances_total", "Rebalances that have ended.", rebalances);
  text += counter("wideep_ep_experts_moved_total", "Experts copied into slots.", expert_moves);
  text +=
      counter("wideep_ep_moved_bytes_total", "Bytes of experts copied into slots.", moved_bytes);
  return text;
}

}  // namespace wideep::server
