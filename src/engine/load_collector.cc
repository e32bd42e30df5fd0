// SPDX-License-Identifier: Apache-2.0
#include "engine/load_collector.h"

#include <algorithm>
#include <numeric>

#include "balance/load_summary.h"
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

double IterationSummary::imbalance_ratio() const {
  const double sum = std::accumulate(imbalance_ratios.begin(), imbalance_ratios.end(), 0.0);
  return imbalance_ratios.empty() ? 0.0 : sum / static_cast<double>(imbalance_ratios.size());
}

LoadCollector::LoadCollector(int ep_size, const std::vector<std::vector<int>>& moe_layers,
                             bool keep_log)
    : ep_size_(ep_size), keep_log_(keep_log) {
  for (const std::vector<int>& of_stage : moe_layers) {
    first_layers_.push_back(sums_.layers.size());
    for (const int layer : of_stage) {
      sums_.layers.push_back({layer, std::vector<int64_t>(ep_size), 0.0});
    }
  }
}

std::optional<IterationSummary> LoadCollector::add(int rank, IterationRecord record) {
  const int64_t iteration = record.iteration;
  auto& ranks = open_[iteration];
  ranks.resize(ep_size_, {.iteration = iteration, .layers = {}});
  IterationRecord& all = ranks[rank % ep_size_];
  all.layers.resize(sums_.layers.size());
  all.prompt_tokens += record.prompt_tokens;
  all.generated_tokens += record.generated_tokens;
  all.queue += record.queue;
  all.tail_cpu_ns += record.tail_cpu_ns;
  all.wall_ns += record.wall_ns;
  const size_t first = first_layers_[rank / ep_size_];
  WIDEEP_CHECK_LE(first + record.layers.size(), all.layers.size());
  std::move(record.layers.begin(), record.layers.end(),
            all.layers.begin() + static_cast<std::ptrdiff_t>(first));
  const int num_ranks = ep_size_ * static_cast<int>(first_layers_.size());
  if (++reported_[iteration] < num_ranks) return std::nullopt;
  IterationSummary summary = fold(ranks);
  open_.erase(iteration);
  reported_.erase(iteration);
  return summary;
}

IterationSummary LoadCollector::fold(const std::vector<IterationRecord>& ranks) {
  IterationSummary summary{.iteration = ranks[0].iteration, .queue = {}, .imbalance_ratios = {}};
  for (const IterationRecord& rank : ranks) {
    WIDEEP_CHECK_EQ(rank.layers.size(), sums_.layers.size());
    summary.prompt_tokens += rank.prompt_tokens;
    summary.generated_tokens += rank.generated_tokens;
    summary.queue += rank.queue;
  }
  const auto add_time = [&](const Spread& time) {
    summary.critical_path_ms += time.largest_ms;
    summary.mean_rank_ms += time.mean_ms;
  };
  for (size_t l = 0; l < sums_.layers.size(); ++l) {
    summary.imbalance_ratios.push_back(add_received(l, ranks));
    const auto experts =
        spread(ranks, [&](const IterationRecord& r) { return r.layers[l].experts_cpu_ns; });
    add_time(experts);
    summary.critical_path_experts_ms += experts.largest_ms;
    summary.mean_experts_ms += experts.mean_ms;
    add_time(spread(ranks, [&](const IterationRecord& r) { return r.layers[l].other_cpu_ns; }));
  }
  add_time(spread(ranks, [](const IterationRecord& r) { return r.tail_cpu_ns; }));
  summary.wall_ms = spread(ranks, [](const IterationRecord& r) { return r.wall_ns; }).largest_ms;
  add_to_sums(summary);
  if (keep_log_) log_.push_back(log_entry(ranks));
  return summary;
}

// Returns the layer's imbalance ratio in this iteration.
double LoadCollector::add_received(size_t layer, const std::vector<IterationRecord>& ranks) {
  std::vector<double> received(ep_size_);
  for (const IterationRecord& rank : ranks) {
    for (int to = 0; to < ep_size_; ++to) received[to] += rank.layers[layer].sent[to];
  }
  for (int to = 0; to < ep_size_; ++to) {
    sums_.layers[layer].received[to] += static_cast<int64_t>(received[to]);
  }
  return balance::summarize_loads(received).imbalance_ratio;
}

void LoadCollector::add_to_sums(const IterationSummary& summary) {
  ++sums_.num_iterations;
  sums_.prompt_tokens += summary.prompt_tokens;
  sums_.generated_tokens += summary.generated_tokens;
  sums_.critical_path_ms += summary.critical_path_ms;
  sums_.critical_path_experts_ms += summary.critical_path_experts_ms;
  sums_.mean_rank_ms += summary.mean_rank_ms;
  sums_.mean_experts_ms += summary.mean_experts_ms;
  for (size_t l = 0; l < sums_.layers.size(); ++l) {
    sums_.layers[l].imbalance_ratio += summary.imbalance_ratios[l];
  }
}

recordings::RoutingLog::Iteration LoadCollector::log_entry(
    const std::vector<IterationRecord>& ranks) const {
  recordings::RoutingLog::Iteration entry;
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
