// SPDX-License-Identifier: Apache-2.0
#include "server/router_metrics.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <vector>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::function<uint64_t(const RouterReplica&)> value;
};

std::string prefix_totals(const RouterReplicas::Totals& totals) {
  return metric("wideep_router_prompt_bytes_total", "counter", "Bytes of prompts that were read",
                totals.prompt_bytes) +
         metric("wideep_router_prefix_exact_total", "counter",
                "Requests whose pages' names were known", totals.num_exact) +
         metric("wideep_router_prefix_unread_total", "counter",
                "Requests for text whose prompt was not read, or not in time", totals.num_unread);
}

// What has another label, or is no whole number.
std::string role_metrics(const RouterReplicas& replicas) {
  std::string roles = metric_head("wideep_router_role", "gauge", "1: the replica has this role");
  std::string seconds =
      metric_head("wideep_router_predicted_seconds_total", "counter",
                  "Seconds predicted from requests for text to their first tokens");
  for (const RouterReplica& each : replicas.slots()) {
    if (!each.is_used()) continue;
    const std::string url = each.address().url();
    roles += fmt::format("wideep_router_role{{replica=\"{}\",role=\"{}\"}} 1\n", url,
                         engine::name_of(each.role()));
    seconds += fmt::format("wideep_router_predicted_seconds_total{{replica=\"{}\"}} {:.6f}\n", url,
                           each.predicted_seconds);
  }
  return roles + seconds +
         metric("wideep_router_prefill_retries_total", "counter",
                "Prompts for another replica that were sent again, or left to it",
                replicas.totals.num_prefill_retries);
}

}  // namespace

std::string metrics_of(const RouterReplicas& replicas) {
  std::vector<Metric> all = {
      {"wideep_router_requests_total", "counter", "Requests forwarded to a replica",
       [](const RouterReplica& each) { return each.requests; }},
      {"wideep_router_requests_running", "gauge", "Requests in progress on a replica",
       [](const RouterReplica& each) { return static_cast<uint64_t>(each.running); }},
      {"wideep_router_failures_total", "counter", "Requests that failed on a replica",
       [](const RouterReplica& each) { return each.failures; }},
      {"wideep_router_replica_up", "gauge", "1: the replica is healthy, 0: it is not",
       [](const RouterReplica& each) { return uint64_t{each.up}; }}};
  const Metric of_prefixes[] = {
      {"wideep_router_prefix_hits_total", "counter",
       "Requests sent to a replica that has a beginning of their prompt",
       [](const RouterReplica& each) { return each.hits; }},
      {"wideep_router_prefix_misses_total", "counter",
       "Requests sent to a replica that has no beginning of their prompt",
       [](const RouterReplica& each) { return each.misses; }},
      {"wideep_router_prefix_matched_bytes_total", "counter",
       "Bytes of prompts whose beginning a replica has",
       [](const RouterReplica& each) { return each.known_bytes; }},
      {"wideep_router_work_bytes", "gauge", "Work in progress on a replica, in bytes of prompts",
       [](const RouterReplica& each) { return each.work(); }},
      {"wideep_router_kv_events_known", "gauge",
       "1: the pages of a replica are known from its KV events, 0: they are not",
       [&](const RouterReplica& each) {
         return uint64_t{replicas.watch(replicas.index_of(each)).is_known()};
       }},
      {"wideep_router_kv_pages", "gauge", "Pages of a replica that are known from its KV events",
       [&](const RouterReplica& each) {
         return uint64_t{replicas.watch(replicas.index_of(each)).num_pages()};
       }}};
  if (replicas.has_prefixes())
    all.insert(all.end(), std::begin(of_prefixes), std::end(of_prefixes));
  const Metric of_disaggregation[] = {
      {"wideep_router_group", "gauge",
       "1: requests are divided with the replica, or given to it, 0: its version or class of "
       "records is another one",
       [](const RouterReplica& each) { return uint64_t{each.refusal.empty()}; }},
      {"wideep_router_prefills_total", "counter", "Prompts sent to a replica for another one",
       [](const RouterReplica& each) { return each.prefills; }},
      {"wideep_router_prefills_running", "gauge", "Prompts that a replica computes for another one",
       [](const RouterReplica& each) { return static_cast<uint64_t>(each.prefills_running); }},
      {"wideep_router_prefill_failures_total", "counter",
       "Prompts for another one that failed on a replica",
       [](const RouterReplica& each) { return each.prefill_failures; }},
      {"wideep_router_prompts_alone_total", "counter",
       "Prompts that the replica which answers has computed itself",
       [](const RouterReplica& each) { return each.alone; }},
      {"wideep_router_prompts_divided_total", "counter",
       "Prompts that another one has computed for the replica which answers",
       [](const RouterReplica& each) { return each.divided; }}};
  if (replicas.disaggregation() != nullptr) {
    all.insert(all.end(), std::begin(of_disaggregation), std::end(of_disaggregation));
  }
  std::string text;
  for (const Metric& each : all) {
    text += metric_head(each.name, each.type, each.help);
    for (const RouterReplica& replica : replicas.slots()) {
      if (!replica.is_used()) continue;
      text += fmt::format("{}{{replica=\"{}\"}} {}\n", each.name, replica.address().url(),
                          each.value(replica));
    }
  }
  if (replicas.has_prefixes()) text += prefix_totals(replicas.totals);
  if (replicas.disaggregation() != nullptr) text += role_metrics(replicas);
  return text +
         metric("wideep_router_streams_resumed_total", "counter",
                "Streams whose replica was lost, and that another one was asked to go on with",
                replicas.totals.num_resumed);
}

}  // namespace wideep::server
