// SPDX-License-Identifier: Apache-2.0
#include "engine/load_collector.h"

#include <algorithm>
#include <numeric>

#include "balance/report.h"
#include "base/check.h"

namespace wideep::engine {
namespace {

// Largest and mean over ranks of one time.
struct Spread {
  double largest_ms = 0.0;
  double mean_ms = 0.0;
};

template <typename Get>
Spread spread(const std::vector<IterationRecord>& ranks, Get get) {
  Spread result;
  for (const IterationRecord& rank : ranks) {
    const double ms = static_cast<double>(get(rank)) * 1e-6;
    result.largest_ms = std::max(result.largest_ms, ms);
    result.mean_ms += ms / static_cast<double>(ranks.size());
  }
  return result;
}

}  // namespace

double LoadTotals::imbalance_ratio() const {
  double sum = 0.0;
  for (const LayerLoad& layer : layers) sum += layer.imbalance_ratio;
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

LoadCollector::LoadCollector(int ep_size, const std::vector<int>& moe_layers, bool keep_log)
    : ep_size_(ep_size), keep_log_(keep_log) {
  for (const int layer : moe_layers) {
    sums_.layers.push_back({layer, std::vector<int64_t>(ep_size), 0.0});
  }
}

void LoadCollector::add(int rank, IterationRecord record) {
  const int64_t iteration = record.iteration;
  auto& ranks = open_[iteration];
  ranks.resize(ep_size_);
  ranks[rank] = std::move(record);
  if (++reported_[iteration] < ep_size_) return;
  fold(ranks);
  open_.erase(iteration);
  reported_.erase(iteration);
}

void LoadCollector::fold(const std::vector<IterationRecord>& ranks) {
  ++sums_.num_iterations;
  for (const IterationRecord& rank : ranks) {
    WIDEEP_CHECK_EQ(rank.layers.size(), sums_.layers.size());
    sums_.prompt_tokens += rank.prompt_tokens;
    sums_.generated_tokens += rank.generated_tokens;
  }
  const auto add_time = [&](const Spread& time) {
    sums_.critical_path_ms += time.largest_ms;
    sums_.mean_rank_ms += time.mean_ms;
  };
  for (size_t l = 0; l < sums_.layers.size(); ++l) {
    std::vector<double> received(ep_size_);
    for (const IterationRecord& rank : ranks) {
      for (int to = 0; to < ep_size_; ++to) received[to] += rank.layers[l].sent[to];
    }
    for (int to = 0; to < ep_size_; ++to) {
      sums_.layers[l].received[to] += static_cast<int64_t>(received[to]);
    }
    sums_.layers[l].imbalance_ratio += balance::summarize_loads(received).imbalance_ratio;

    const auto experts =
        spread(ranks, [&](const IterationRecord& r) { return r.layers[l].experts_cpu_ns; });
    add_time(experts);
    sums_.critical_path_experts_ms += experts.largest_ms;
    sums_.mean_experts_ms += experts.mean_ms;
    add_time(spread(ranks, [&](const IterationRecord& r) { return r.layers[l].other_cpu_ns; }));
  }
  add_time(spread(ranks, [](const IterationRecord& r) { return r.tail_cpu_ns; }));
  if (keep_log_) log_.push_back(log_entry(ranks));
}

balance::RoutingLog::Iteration LoadCollector::log_entry(
    const std::vector<IterationRecord>& ranks) const {
  balance::RoutingLog::Iteration entry;
  entry.iteration = static_cast<int>(ranks[0].iteration);
  for (const IterationRecord& rank : ranks) {
    entry.prompt_tokens += rank.prompt_tokens;
    entry.generated_tokens += rank.generated_tokens;
  }
  for (size_t l = 0; l < sums_.layers.size(); ++l) {
    auto& sent = entry.sent.emplace_back();
    auto& counts = entry.counts.emplace_back();
    for (const IterationRecord& rank : ranks) {
      sent.push_back(rank.layers[l].sent);
      counts.push_back(rank.layers[l].counts);
    }
    const auto time =
        spread(ranks, [&](const IterationRecord& r) { return r.layers[l].experts_cpu_ns; });
    entry.critical_path_us.push_back(time.largest_ms * 1e3);
  }
  return entry;
}

LoadTotals LoadCollector::totals() const {
  LoadTotals totals = sums_;
  for (LayerLoad& layer : totals.layers) {
    layer.imbalance_ratio /= static_cast<double>(std::max<int64_t>(totals.num_iterations, 1));
  }
  return totals;
}

}  // namespace wideep::engine
