// SPDX-License-Identifier: Apache-2.0
//
// Times are those of one rank's clock, since events of a benchmark come together long after.
#include "run/routing_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "model/model_division.h"
#include "run/iteration_summary.h"

namespace wideep::run {

RoutingRecorder::RoutingRecorder(const Run& run, int64_t next)
    : request_(*run.options().routing_log),
      experts_(run.plan().experts),
      balances_online_(run.plan().balances_online()),
      next_(next),
      done_before_(next > 0 && run.has_written_routing_log()),
      done_(done_before_) {
  const RunPlan& plan = run.plan();
  const model::RoutingConfig& routing = plan.model.config.routing;
  log_.model = std::filesystem::path(run.options().model_dir).lexically_normal().filename();
  log_.ep_size = plan.experts.stage_size;
  log_.num_experts = routing.num_experts;
  log_.num_slots = plan.model.placement.num_slots;
  log_.top_k = routing.top_k;
  log_.layers = model::moe_layers(plan.model.config);
}

Status RoutingRecorder::add(const Iteration& iteration) {
  const engine::IterationRecord& record = iteration.ranks[0];
  next_ = record.iteration + 1;
  if (done_) return {};
  if (request_.contains(record.iteration)) {
    log_.iterations.push_back(routing_log_entry(iteration, experts_));
    if (num_recorded_++ == 0) first_ns_ = record.end_ns - record.wall_ns;
    last_ns_ = record.end_ns;
  }
  const bool is_over = request_.range && next_ >= request_.range->last;
  return is_over && !request_.by_request ? write() : Status();
}

Status RoutingRecorder::add(const Rebalance& rebalance) {
  const size_t before = log_.layer_updates.size();
  for (const online::LayerSwitch& one : rebalance.switches) {
    if (!std::ranges::binary_search(log_.layers, one.layer)) continue;
    if (!request_.contains(one.iteration)) continue;
    log_.layer_updates.push_back({one.layer, rebalance.decided, one.iteration, one.moves});
  }
  const bool is_late = done_ && !done_before_ && log_.layer_updates.size() > before;
  return is_late ? write() : Status();
}

// Several ranks send counts of one request if they compute batches together.
Status RoutingRecorder::add(const RequestCounts& counts) {
  const auto index = static_cast<size_t>(counts.request_index);
  if (index >= log_.requests.size()) return {};
  request_counts_.resize(log_.requests.size());
  std::vector<int64_t>& sums = request_counts_[index];
  sums.resize(counts.counts.size());
  std::transform(sums.begin(), sums.end(), counts.counts.begin(), sums.begin(), std::plus<>());
  return {};
}

Status RoutingRecorder::finish() { return done_ ? Status() : write(); }

// What only follows from all iterations.
void RoutingRecorder::complete() {
  const auto num_experts = static_cast<size_t>(log_.num_experts);
  int64_t generated = 0;
  double critical_path_us = 0;
  for (const recordings::RoutingLog::Iteration& each : log_.iterations) {
    generated += each.generated_tokens;
    critical_path_us +=
        std::accumulate(each.critical_path_us.begin(), each.critical_path_us.end(), 0.0);
  }
  log_.critical_path_ms = critical_path_us * 1e-3;
  log_.wall_ms = static_cast<double>(std::max<int64_t>(last_ns_ - first_ns_, 0)) * 1e-6;
  if (log_.wall_ms > 0) {
    log_.tokens_per_second = static_cast<double>(generated) / log_.wall_ms * 1e3;
  }
  std::ranges::sort(log_.layer_updates, [](const auto& a, const auto& b) {
    return std::tie(a.switched, a.layer) < std::tie(b.switched, b.layer);
  });
  request_counts_.resize(log_.requests.size());
  log_.request_counts.clear();
  for (const std::vector<int64_t>& counts : request_counts_) {
    auto& layers =
        log_.request_counts.emplace_back(log_.layers.size(), std::vector<int64_t>(num_experts));
    for (size_t i = 0; i < counts.size(); ++i) layers[i / num_experts][i % num_experts] = counts[i];
  }
}

Status RoutingRecorder::write() {
  done_ = true;
  if (log_.iterations.empty()) return {};
  complete();
  if (request_.path.empty()) return {};
  const Status written = recordings::write_routing_log(request_.path, log_);
  if (!balances_online_) log_.iterations.clear();
  return written;
}

std::optional<recordings::RoutingLog> RoutingRecorder::take() {
  const bool is_kept = request_.path.empty() && !log_.iterations.empty();
  return is_kept ? std::optional(std::exchange(log_, {})) : std::nullopt;
}

std::string RoutingRecorder::missing(const std::string& why) const {
  if (!request_.range || done_before_) return {};
  const IterationRange& range = *request_.range;
  if (num_recorded_ >= range.last - range.first) return {};
  const std::string what = "routing log of iterations " + range.text();
  if (num_recorded_ == 0) {
    return fmt::format("{}: {} {} iterations, none is recorded", what, why, next_);
  }
  const std::string recorded =
      fmt::format("{} of them are recorded in {}", num_recorded_, request_.path);
  if (next_ < range.last)
    return fmt::format("{}: {} {} iterations, {}", what, why, next_, recorded);
  return fmt::format("{}: {}; the others were lost with a process that died", what, recorded);
}

}  // namespace wideep::run
