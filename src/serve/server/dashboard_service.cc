// SPDX-License-Identifier: Apache-2.0
#include "server/dashboard_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/openai_reply.h"
#include "server/dashboard_page.h"
#include "server/recent_times.h"

namespace wideep::server {

using nlohmann::ordered_json;

void DashboardService::perf_metrics(const std::shared_ptr<Exchange>& exchange) {
  constexpr int64_t kBeforeTheFirst = -1;
  const auto since = replies_.read_number(
      exchange,
      {.name = "since", .what = "the number of an iteration", .by_default = kBeforeTheFirst});
  if (!since) return;
  replies_.reply(exchange, kJson, state_.monitor.iterations(std::max(*since, kBeforeTheFirst)));
}

// The page itself contains no data and needs no key. Its script asks the user for the key, if one
// is required, and sends it with /dashboard/data.
void DashboardService::dashboard(const std::shared_ptr<Exchange>& exchange) {
  replies_.reply(exchange, "text/html; charset=utf-8", dashboard_page());
}

void DashboardService::dashboard_data(const std::shared_ptr<Exchange>& exchange) {
  const auto since =
      replies_.read_number(exchange, {.name = "since", .what = "seconds since 1970"});
  if (!since) return;
  ordered_json data = state_.monitor.dashboard(*since, unix_seconds());
  data["model"] = options_.model;
  data["ranks"] = state_.ranks.json();
  data["balancer"] = state_.balancer.json();
  data["prompt_cache"] = state_.places.json();
  data["experts"] = state_.experts.json();
  data["page_sharing"] = pd_.sharing();
  data["has_experts"] = !state_.load.layers().empty();
  data["version"] = WIDEEP_VERSION;
  data["started"] = replies_.started();
  data["returns_experts"] = options_.returns_experts;
  replies_.reply(exchange, kJson, json_text(data));
}

void DashboardService::dashboard_load(const std::shared_ptr<Exchange>& exchange) {
  const std::vector<int>& layers = state_.load.layers();
  const auto layer =
      replies_.read_number(exchange, {.name = "layer",
                                      .what = "the number of a MoE layer",
                                      .by_default = layers.empty() ? 0 : layers.front()});
  if (!layer) return;
  const auto since =
      replies_.read_number(exchange, {.name = "since", .what = "seconds since 1970"});
  if (!since) return;
  const auto found = std::ranges::find(layers, *layer);
  if (found == layers.end() && !layers.empty()) {
    return replies_.refuse(exchange,
                           {.message = fmt::format("layer: expected one of the MoE layers {}, "
                                                   "found {}",
                                                   fmt::join(layers, ", "), *layer),
                            .param = "layer"});
  }
  const auto index = static_cast<size_t>(found - layers.begin());
  replies_.reply(exchange, kJson, json_text(state_.load.json(index, *since)));
}

}  // namespace wideep::server
