// SPDX-License-Identifier: Apache-2.0
#include "server/iteration_stats.h"

#include <algorithm>
#include <utility>

#include "balance/load_summary.h"
#include "base/check.h"
#include "server/recent_times.h"

namespace wideep::server {
std::optional<IterationStats> IterationCollector::add(int rank, engine::IterationRecord record) {
  Open& open = open_[record.iteration];
  IterationStats& stats = open.stats;
  stats.iteration = record.iteration;
  stats.rank_load.resize(ranks_.ranks.size());
  stats.wall_seconds = std::max(stats.wall_seconds, static_cast<double>(record.wall_ns) * 1e-9);
  stats.context_tokens += record.prompt_tokens;
  stats.generated_tokens += record.generated_tokens;
  stats.queue += record.queue;
  take_layers(rank, record, open);
  if (++open.told < static_cast<int>(ranks_.ranks.size())) return std::nullopt;
  IterationStats whole = close(std::move(open));
  open_.erase(whole.iteration);
  return whole;
}

void IterationCollector::take_layers(int rank, engine::IterationRecord& record, Open& open) const {
  const int stage = rank / ranks_.stage_size;
  const auto first = static_cast<size_t>(stage * ranks_.stage_size);
  for (size_t i = 0; i < record.layers.size(); ++i) {
    engine::LayerRecord& layer = record.layers[i];
    WIDEEP_CHECK_EQ(layer.sent.size(), static_cast<size_t>(ranks_.stage_size));
    std::vector<double>& received = open.received[{stage, i}];
    received.resize(layer.sent.size());
    for (size_t to = 0; to < layer.sent.size(); ++to) {
      received[to] += layer.sent[to];
      open.stats.rank_load[first + to] += layer.sent[to];
    }
    if (layer.initial_imbalance >= 0.0f) {
      open.initial_sum += static_cast<double>(layer.initial_imbalance);
      ++open.num_initial;
    }
    if (layer.counts.empty()) continue;
    open.stats.expert_counts.resize(ranks_.ranks.size());
    open.stats.expert_counts[static_cast<size_t>(rank)].push_back(std::move(layer.counts));
  }
}

IterationStats IterationCollector::close(Open open) {
  IterationStats stats = std::move(open.stats);
  stats.time = unix_seconds();
  double sum = 0.0;
  for (const auto& [layer, received] : open.received) {
    sum += balance::summarize_loads(received).imbalance_ratio;
  }
  if (!open.received.empty()) stats.imbalance = sum / static_cast<double>(open.received.size());
  if (open.num_initial > 0) stats.initial_imbalance = open.initial_sum / open.num_initial;
  return stats;
}

}  // namespace wideep::server
