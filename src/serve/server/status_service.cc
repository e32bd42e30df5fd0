// SPDX-License-Identifier: Apache-2.0
#include "server/status_service.h"

#include <fmt/format.h>

#include "api/messages_reply.h"
#include "api/openai_reply.h"
#include "server/process_metrics.h"
#include "server/recent_times.h"

namespace wideep::server {

using nlohmann::ordered_json;

ordered_json StatusService::model_json() const {
  return {{"id", options_.model},
          {"object", "model"},
          {"created", replies_.started()},
          {"owned_by", "wideep"},
          {"max_model_len", options_.max_sequence}};
}

void StatusService::models(const std::shared_ptr<Exchange>& exchange) {
  if (is_anthropic(exchange->head())) {
    return replies_.reply(
        exchange, kJson,
        json_text(anthropic_models(options_.model, replies_.started(), options_.max_sequence)));
  }
  replies_.reply(exchange, kJson,
                 json_text({{"object", "list"}, {"data", ordered_json::array({model_json()})}}));
}

void StatusService::model(const std::shared_ptr<Exchange>& exchange) {
  const std::string path(path_of(*exchange));
  const std::string& other = options_.other_name;
  if (path == "/v1/models/" + options_.model || (!other.empty() && path == "/v1/models/" + other)) {
    return replies_.reply(
        exchange, kJson,
        json_text(is_anthropic(exchange->head())
                      ? anthropic_model(options_.model, replies_.started(), options_.max_sequence)
                      : model_json()));
  }
  replies_.refuse(exchange, {.status = 404,
                             .message = fmt::format("the model here is '{}'", options_.model),
                             .code = "model_not_found"});
}

void StatusService::health(const std::shared_ptr<Exchange>& exchange) {
  if (text_.is_draining()) {
    return replies_.reply_with(exchange, 503,
                               json_text({{"status", "draining"}, {"running", text_.running()}}));
  }
  if (const auto trouble = text_.trouble()) return replies_.refuse(exchange, *trouble);
  // Still 200: requests are answered, by fewer ranks.
  const std::string degraded = state_.ranks.degraded();
  if (degraded.empty()) return replies_.reply(exchange, kJson, json_text({{"status", "ok"}}));
  replies_.reply(exchange, kJson, json_text({{"status", "degraded"}, {"reason", degraded}}));
}

void StatusService::version(const std::shared_ptr<Exchange>& exchange) {
  replies_.reply(exchange, kJson, json_text({{"version", WIDEEP_VERSION}}));
}

void StatusService::metrics(const std::shared_ptr<Exchange>& exchange) {
  const Metrics& metrics = state_.metrics;
  std::string text = build_info({.version = WIDEEP_VERSION,
                                 .commit = options_.commit,
                                 .isa = options_.isa,
                                 .model = options_.model}) +
                     process_metrics();
  if (options_.metrics_names != MetricsNames::kVllm) {
    text += metrics.text() + state_.ranks.metrics() + text_.responses().metrics() +
            text_.trace_metrics() +
            state_.balancer.metrics(state_.monitor.recent_imbalance(unix_seconds())) +
            state_.places.metrics() + state_.experts.metrics() + pd_.metrics();
  }
  text += metrics.vllm_text(
      state_.places.exist() ? std::optional(state_.places.fetches().fetched_tokens) : std::nullopt);
  if (metrics.vllm) text += pd_.vllm_metrics(metrics.vllm->labels());
  replies_.reply(exchange, "text/plain; version=0.0.4; charset=utf-8", text);
}

}  // namespace wideep::server
