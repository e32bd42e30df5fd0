// SPDX-License-Identifier: Apache-2.0
//
// An iteration becomes JSON when it ends: to write a thousand for one reply would hold up the
// serving thread. Seconds hold sums, which are divided when they are shown. Moves of experts
// and transfers of prompts are told with the iteration that ends next. If the clock is set back,
// what happens counts to the last second, so seconds stay in order.
#include "server/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "formats/json_text.h"
#include "store/page_peer.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr double kQuantileSeconds = 60.0;  // of what is shown as recent

ordered_json optional_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// A rank that was no member has no load, which is not the same as a load of 0.
ordered_json loads_json(const std::vector<int64_t>& loads, const std::vector<bool>& took_part) {
  ordered_json all = ordered_json::array();
  for (size_t rank = 0; rank < loads.size(); ++rank) {
    all.push_back(took_part[rank] ? ordered_json(loads[rank]) : ordered_json(nullptr));
  }
  return all;
}

ordered_json quantiles_json(const RecentTimes::Quantiles& times) {
  return {{"count", times.count}, {"p50", times.p50}, {"p90", times.p90}, {"p99", times.p99}};
}

}  // namespace

Monitor::Second& Monitor::second_of(double time) {
  const auto second = static_cast<int64_t>(std::floor(time));
  // If the clock was set back, events count to the last second until the clock has caught up.
  if (seconds_.empty() || seconds_.back().time < second) {
    seconds_.emplace_back();
    seconds_.back().time = second;
    seconds_.back().rank_load.resize(static_cast<size_t>(num_ranks_));
    seconds_.back().took_part.resize(static_cast<size_t>(num_ranks_));
    if (seconds_.size() > kMaxSeconds) seconds_.pop_front();
  }
  return seconds_.back();
}

void Monitor::add(const run::IterationSummary& iteration, double now) {
  iterations_.push_back({iteration.iteration, formats::json_text(json_of(iteration, now))});
  moves_ = moved_bytes_ = 0;
  transfers_.clear();
  if (iterations_.size() > kMaxIterations) {
    before_ = iterations_.front().number;
    iterations_.pop_front();
  }
  Second& second = second_of(now);
  ++second.iterations;
  second.context_tokens += iteration.prompt_tokens;
  second.generated_tokens += iteration.generated_tokens;
  second.busy_seconds += iteration.wall_ms * 1e-3;
  second.imbalance_sum += iteration.imbalance_ratio();
  if (iteration.initial_imbalance) {
    second.initial_imbalance_sum += *iteration.initial_imbalance;
    ++second.num_initial;
  }
  second.running_sum += iteration.queue.running;
  second.waiting_sum += iteration.queue.waiting;
  second.pages_sum += iteration.queue.cache_pages;
  second.max_pages = iteration.queue.max_pages;
  second.drafts += iteration.speculation.drafts;
  second.drafted += iteration.speculation.drafted;
  second.accepted += iteration.speculation.accepted;
  for (size_t rank = 0; rank < second.rank_load.size(); ++rank) {
    second.rank_load[rank] += iteration.rank_load[rank];
    if (iteration.members.empty()) second.took_part[rank] = true;
  }
  for (const int rank : iteration.members) second.took_part[static_cast<size_t>(rank)] = true;
}

void Monitor::add(const online::Rebalance& each, double now) {
  moves_ += each.moves;
  moved_bytes_ += each.bytes;
  Second& second = second_of(now);
  second.moves += each.moves;
  second.moved_bytes += each.bytes;
  rebalances_.push_back({{"time", now},
                         {"iteration", each.iteration},
                         {"layers", each.layers},
                         {"cancelled", each.cancelled},
                         {"moves", each.moves},
                         {"bytes", each.bytes},
                         {"imbalance_before", each.imbalance_before},
                         {"imbalance_after", each.imbalance_after},
                         {"seconds", each.seconds}});
  if (rebalances_.size() > kMaxRebalances) rebalances_.pop_front();
}

void Monitor::add(const ExpertWork& work, double now) {
  if (work.counts.chosen > 0) second_of(now).experts += work;
}

void Monitor::add(const run::PromptTransfer& transfer, std::string_view peer) {
  const auto from = store::parse_page_peer(peer);
  if (!from.ok()) return;
  const run::PeerPages& came = transfer.from_peer;
  transfers_.push_back(
      {{"prefill_server", from->host.text()},
       {"ctx_request_id", from->computes() ? ordered_json(from->request) : nullptr},
       {"pages_known", transfer.known_pages},
       {"pages_fetched", transfer.fetched_pages},
       {"pages_from_server", came.pages},
       {"bytes", came.bytes},
       {"seconds", came.seconds},
       {"seconds_hidden", came.hidden_seconds()},
       {"seconds_not_hidden", came.exposed_seconds},
       {"trouble", run::name_of(came.kind)}});
}

RecentImbalance Monitor::recent_imbalance(double now) const {
  double sum = 0.0, initial_sum = 0.0;
  int64_t iterations = 0, num_initial = 0;
  for (const Second& each : seconds_) {
    if (static_cast<double>(each.time) < now - kQuantileSeconds) continue;
    sum += each.imbalance_sum;
    iterations += each.iterations;
    initial_sum += each.initial_imbalance_sum;
    num_initial += each.num_initial;
  }
  RecentImbalance recent;
  if (iterations > 0) recent.ratio = sum / static_cast<double>(iterations);
  if (num_initial > 0) recent.without_moves = initial_sum / static_cast<double>(num_initial);
  return recent;
}

// Iterations are numbered without gaps, so the number of dropped ones follows from their last one.
std::string Monitor::iterations(int64_t since) const {
  const int64_t last = iterations_.empty() ? before_ : iterations_.back().number;
  const int64_t dropped = std::max<int64_t>(before_ - since, 0);
  size_t bytes = 0;
  for (const Iteration& each : iterations_) bytes += each.json.size() + 1;
  std::string text;
  text.reserve(bytes + 100);
  text += fmt::format("{{\"last\":{},\"dropped\":{},\"iterations\":[", last, dropped);
  const char* separator = "";
  for (const Iteration& each : iterations_) {
    if (each.number <= since) continue;
    text += std::exchange(separator, ",");
    text += each.json;
  }
  return text + "]}\n";
}

ordered_json Monitor::json_of(const run::IterationSummary& summary, double time) const {
  ordered_json all = {{"iteration", summary.iteration},
                      {"timestamp", time},
                      {"iteration_seconds", summary.wall_ms * 1e-3},
                      {"num_running_requests", summary.queue.running},
                      {"num_waiting_requests", summary.queue.waiting},
                      {"num_context_tokens", summary.prompt_tokens},
                      {"num_generated_tokens", summary.generated_tokens},
                      {"kv_pages_used", summary.queue.cache_pages},
                      {"kv_pages_free", summary.queue.max_pages - summary.queue.cache_pages},
                      {"rank_load", summary.rank_load},
                      {"imbalance_ratio", summary.imbalance_ratio()},
                      {"initial_imbalance_ratio", optional_json(summary.initial_imbalance)},
                      {"expert_moves", moves_},
                      {"expert_moved_bytes", moved_bytes_}};
  if (!transfers_.empty()) all["prompt_transfers"] = transfers_;
  return all;
}

ordered_json Monitor::json_of(const Second& second) {
  const auto iterations = static_cast<double>(std::max<int64_t>(second.iterations, 1));
  const auto num_initial = static_cast<double>(second.num_initial);
  return {{"time", second.time},
          {"iterations", second.iterations},
          {"context_tokens", second.context_tokens},
          {"generated_tokens", second.generated_tokens},
          {"busy_seconds", second.busy_seconds},
          {"running", second.running_sum / iterations},
          {"waiting", second.waiting_sum / iterations},
          {"used_pages", second.pages_sum / iterations},
          {"max_pages", second.max_pages},
          {"rank_load", loads_json(second.rank_load, second.took_part)},
          {"imbalance", second.imbalance_sum / iterations},
          {"initial_imbalance", num_initial > 0
                                    ? ordered_json(second.initial_imbalance_sum / num_initial)
                                    : ordered_json(nullptr)},
          {"moves", second.moves},
          {"moved_bytes", second.moved_bytes},
          {"drafts", second.drafts},
          {"drafted_tokens", second.drafted},
          {"accepted_tokens", second.accepted},
          {"experts",
           second.experts.counts.chosen > 0 ? work_json(second.experts) : ordered_json(nullptr)}};
}

ordered_json Monitor::dashboard(int64_t since, double now) const {
  ordered_json seconds = ordered_json::array();
  for (const Second& each : seconds_) {
    if (each.time >= since) seconds.push_back(json_of(each));
  }
  const double from = now - kQuantileSeconds;
  return {{"now", now},
          {"num_ranks", num_ranks_},
          {"balances_online", balances_online_},
          {"speculates", metrics_.speculates},
          {"history_seconds", kMaxSeconds},
          {"answers_running", metrics_.running},
          {"prompt_tokens", metrics_.prompt_tokens},
          {"generated_tokens", metrics_.generated_tokens},
          {"iterations", metrics_.iterations},
          {"rebalances", metrics_.rebalances},
          {"expert_moves", metrics_.expert_moves},
          {"moved_bytes", metrics_.moved_bytes},
          {"ttft", quantiles_json(metrics_.recent_first.since(from))},
          {"itl", quantiles_json(metrics_.recent_between.since(from))},
          {"seconds", std::move(seconds)},
          {"last_rebalances", rebalances_}};
}

}  // namespace wideep::server
