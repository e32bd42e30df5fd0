// SPDX-License-Identifier: Apache-2.0
//
// The assembler keeps a row of records for each open iteration, by epoch and number. When the
// members change, what earlier epochs have begun and not ended is dropped, once all members are in
// the new one.
//
// A summary goes over the MoE layers of all stages. What a rank received is the column of what the
// others say they sent, so no rank has to count it. The critical path adds the slowest rank of each
// part, because ranks wait for each other between the parts.
#include "run/iteration_summary.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "plan/load_summary.h"

namespace wideep::run {
namespace {

using engine::IterationRecord;
using engine::LayerRecord;

double milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// The largest and the mean of a time over the ranks of a stage.
struct Spread {
  double largest_ms = 0.0;
  double mean_ms = 0.0;
};

template <typename Get>
Spread spread(int num_ranks, Get get_ns) {
  Spread result;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const double ms = milliseconds(get_ns(rank));
    result.largest_ms = std::max(result.largest_ms, ms);
    result.mean_ms += ms / num_ranks;
  }
  return result;
}

// The records of one MoE layer, of all ranks of its stage.
struct StageLayer {
  const IterationRecord* ranks;  // of the stage
  int first_rank;                // its index in Iteration::ranks
  size_t index;                  // among the stage's layers
  const LayerRecord& operator[](int rank) const { return ranks[rank].layers[index]; }
};

// The ranks of a stage that took part.
int ranks_of_stage(const Iteration& iteration, const ExpertRanks& experts) {
  return static_cast<int>(iteration.ranks.size()) / experts.num_stages();
}

// body(layer) for the MoE layers of all stages, ascending.
template <typename Body>
void for_each_layer(const Iteration& iteration, const ExpertRanks& experts, Body body) {
  const int num_ranks = ranks_of_stage(iteration, experts);
  for (int stage = 0; stage < experts.num_stages(); ++stage) {
    const int first_rank = stage * num_ranks;
    const IterationRecord* ranks = iteration.ranks.data() + first_rank;
    const size_t num_layers = experts.layers_of_stage(stage).size();
    for (int rank = 0; rank < num_ranks; ++rank) {
      WIDEEP_CHECK_EQ(ranks[rank].layers.size(), num_layers);
    }
    for (size_t i = 0; i < num_layers; ++i) body(StageLayer{ranks, first_rank, i});
  }
}

// Adds one layer: its load per rank, and its part of the critical path.
void add_layer(const StageLayer& layer, const Iteration& iteration, const ExpertRanks& all,
               IterationSummary* summary) {
  const int num_ranks = ranks_of_stage(iteration, all);
  // Ranks record what they send; a column of this matrix is what a rank receives.
  std::vector<int64_t> received(static_cast<size_t>(num_ranks));
  const auto of_stage = [&](int index) {
    return static_cast<size_t>(iteration.rank(static_cast<size_t>(layer.first_rank + index)) %
                               all.stage_size);
  };
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<int32_t>& sent = layer[rank].sent;
    std::vector<int64_t>& sums = summary->sent[of_stage(rank)];
    for (size_t to = 0; to < sent.size(); ++to) {
      received[to] += sent[to];
      sums[of_stage(static_cast<int>(to))] += sent[to];
    }
  }
  const std::vector<double> loads(received.begin(), received.end());
  summary->imbalance_ratios.push_back(balance::summarize_loads(loads).imbalance_ratio);
  std::vector<int64_t>& by_rank =
      summary->received.emplace_back(static_cast<size_t>(all.stage_size));
  for (int index = 0; index < num_ranks; ++index) {
    const int rank = iteration.rank(static_cast<size_t>(layer.first_rank + index));
    const int64_t pairs = received[static_cast<size_t>(index)];
    summary->rank_load[static_cast<size_t>(rank)] += pairs;
    by_rank[of_stage(index)] = pairs;
  }
  // Every layer has two waits for the slowest rank, for the rows and for the results. So the maxima
  // of the two parts add up (engine/iteration_record.h).
  const Spread experts = spread(num_ranks, [&](int rank) { return layer[rank].experts_cpu_ns; });
  const Spread other = spread(num_ranks, [&](int rank) { return layer[rank].other_cpu_ns; });
  summary->critical_path_ms += experts.largest_ms + other.largest_ms;
  summary->mean_rank_ms += experts.mean_ms + other.mean_ms;
  summary->critical_path_experts_ms += experts.largest_ms;
  summary->mean_experts_ms += experts.mean_ms;
}

double mean(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

}  // namespace

IterationAssembler::IterationAssembler(int num_ranks, int start_ranks, int64_t next)
    : epochs_(static_cast<size_t>(num_ranks), 1), next_(next) {
  std::vector<int>& all = members_[1];
  all.resize(static_cast<size_t>(start_ranks > 0 ? start_ranks : num_ranks));
  std::iota(all.begin(), all.end(), 0);
}

std::optional<Iteration> IterationAssembler::add(int rank, IterationRecord record) {
  // Ranks may be several iterations apart (pipeline stages, buffered messages): several are open.
  const uint32_t epoch = epochs_[static_cast<size_t>(rank)];
  const auto found = members_.find(epoch);
  // Of a rank that is no member any more: its last message comes after those of the others.
  if (found == members_.end()) return std::nullopt;
  const std::vector<int>& members = found->second;
  const auto place = std::ranges::find(members, rank) - members.begin();
  if (place == std::ssize(members)) return std::nullopt;
  const std::pair key(epoch, record.iteration);
  Open& open = open_[key];
  open.ranks.resize(members.size());
  open.ranks[static_cast<size_t>(place)] = std::move(record);
  if (++open.num_reported < members.size()) return std::nullopt;
  // Of one epoch iterations are complete in their order; so what is not behind the last one comes
  // from ranks that have begun anew.
  offset_ = std::max(offset_, next_ - key.second);
  for (IterationRecord& each : open.ranks) each.iteration = number(key.second);
  next_ = number(key.second) + 1;
  std::optional<Iteration> iteration = Iteration{
      std::move(open.ranks), members.size() == epochs_.size() ? std::vector<int>() : members};
  open_.erase(key);
  return iteration;
}

bool IterationAssembler::change(int rank, const MembersChanged& members) {
  epochs_[static_cast<size_t>(rank)] = members.epoch;
  members_[members.epoch] = members.ranks;
  const bool all = std::ranges::all_of(
      members.ranks, [&](int each) { return epochs_[static_cast<size_t>(each)] == members.epoch; });
  if (!all) return false;
  std::erase_if(open_, [&](const auto& each) { return each.first.first < members.epoch; });
  members_.erase(members_.begin(), members_.find(members.epoch));
  return true;
}

IterationSummary summarize(const Iteration& iteration, const ExpertRanks& experts) {
  const int num_ranks = ranks_of_stage(iteration, experts);
  IterationSummary summary{.iteration = iteration.ranks[0].iteration,
                           .queue = {},
                           .received = {},
                           .sent = {},
                           .imbalance_ratios = {},
                           .rank_load = std::vector<int64_t>(experts.ranks.size()),
                           .members = iteration.members,
                           .initial_imbalance = {},
                           .speculation = {}};
  const auto stage_size = static_cast<size_t>(experts.stage_size);
  summary.sent.assign(stage_size, std::vector<int64_t>(stage_size));
  for (const IterationRecord& rank : iteration.ranks) {
    summary.prompt_tokens += rank.prompt_tokens;
    summary.generated_tokens += rank.generated_tokens;
    summary.queue += rank.queue;
    summary.speculation.add(rank);
  }
  std::vector<double> initial;
  for_each_layer(iteration, experts, [&](const StageLayer& layer) {
    add_layer(layer, iteration, experts, &summary);
    const float ratio = layer[0].initial_imbalance;  // reported by the stage's first rank
    if (ratio >= 0.0f) initial.push_back(static_cast<double>(ratio));
  });
  if (!initial.empty()) summary.initial_imbalance = mean(initial);
  // An iteration passes through the stages of a pipeline one after the other, so their times add
  // up.
  const auto over_stages = [&](int64_t IterationRecord::* ns) {
    return [&, ns](int rank) {
      int64_t sum = 0;
      for (int stage = 0; stage < experts.num_stages(); ++stage) {
        sum += iteration.ranks[static_cast<size_t>(stage * num_ranks + rank)].*ns;
      }
      return sum;
    };
  };
  const Spread tail = spread(num_ranks, over_stages(&IterationRecord::tail_cpu_ns));
  summary.critical_path_ms += tail.largest_ms;
  summary.mean_rank_ms += tail.mean_ms;
  summary.wall_ms = spread(num_ranks, over_stages(&IterationRecord::wall_ns)).largest_ms;
  return summary;
}

double IterationSummary::imbalance_ratio() const { return mean(imbalance_ratios); }

double LoadTotals::imbalance_ratio() const {
  std::vector<double> ratios;
  for (const LayerLoad& layer : layers) ratios.push_back(layer.imbalance_ratio);
  return mean(ratios);
}

LoadSums::LoadSums(const ExpertRanks& experts) {
  for (int stage = 0; stage < experts.num_stages(); ++stage) {
    for (const int layer : experts.layers_of_stage(stage)) {
      sums_.layers.push_back(
          {layer, std::vector<int64_t>(static_cast<size_t>(experts.stage_size)), 0.0});
    }
  }
}

void LoadSums::add(const IterationSummary& summary) {
  ++sums_.num_iterations;
  sums_.prompt_tokens += summary.prompt_tokens;
  sums_.generated_tokens += summary.generated_tokens;
  sums_.critical_path_ms += summary.critical_path_ms;
  sums_.critical_path_experts_ms += summary.critical_path_experts_ms;
  sums_.mean_rank_ms += summary.mean_rank_ms;
  sums_.mean_experts_ms += summary.mean_experts_ms;
  sums_.speculation += summary.speculation;
  for (size_t i = 0; i < sums_.layers.size(); ++i) {
    LayerLoad& layer = sums_.layers[i];
    layer.imbalance_ratio += summary.imbalance_ratios[i];
    std::transform(layer.received.begin(), layer.received.end(), summary.received[i].begin(),
                   layer.received.begin(), std::plus<>());
  }
}

LoadTotals LoadSums::totals() const {
  LoadTotals totals = sums_;
  for (LayerLoad& layer : totals.layers) {
    layer.imbalance_ratio /= static_cast<double>(std::max<int64_t>(totals.num_iterations, 1));
  }
  return totals;
}

recordings::RoutingLog::Iteration routing_log_entry(const Iteration& iteration,
                                                    const ExpertRanks& experts) {
  recordings::RoutingLog::Iteration entry;
  const int num_ranks = ranks_of_stage(iteration, experts);
  entry.iteration = static_cast<int>(iteration.ranks[0].iteration);
  for (const IterationRecord& rank : iteration.ranks) {
    entry.prompt_tokens += rank.prompt_tokens;
    entry.generated_tokens += rank.generated_tokens;
  }
  for_each_layer(iteration, experts, [&](const StageLayer& layer) {
    const auto stage_size = static_cast<size_t>(experts.stage_size);
    auto& sent = entry.sent.emplace_back(stage_size, std::vector<int32_t>(stage_size));
    auto& counts = entry.counts.emplace_back(
        stage_size, std::vector<int32_t>(static_cast<size_t>(experts.statistics.num_experts)));
    const auto of_stage = [&](int index) {
      return static_cast<size_t>(iteration.rank(static_cast<size_t>(layer.first_rank + index)) %
                                 experts.stage_size);
    };
    for (int index = 0; index < num_ranks; ++index) {
      const LayerRecord& record = layer[index];
      if (record.counts.empty()) continue;  // it has joined, and had no tokens yet
      counts[of_stage(index)] = record.counts;
      for (size_t to = 0; to < record.sent.size(); ++to) {
        sent[of_stage(index)][of_stage(static_cast<int>(to))] = record.sent[to];
      }
    }
    const Spread time = spread(num_ranks, [&](int rank) { return layer[rank].experts_cpu_ns; });
    entry.critical_path_us.push_back(time.largest_ms * 1e3);
  });
  return entry;
}

}  // namespace wideep::run
