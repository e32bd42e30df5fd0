// SPDX-License-Identifier: Apache-2.0
//
// One pass over the recording feeds all policies of all budgets, and counts the reads of each
// record: sets that do not change are judged by these counts alone.
#include "residency/hit_rates.h"

#include <algorithm>
#include <numeric>

#include "residency/lru_cache.h"

namespace wideep::residency {
namespace {

using Reads = std::vector<int64_t>;  // [L, E]

struct ModelShape {
  int num_layers = 0;
  int num_experts = 0;

  size_t num_records() const {
    return static_cast<size_t>(num_layers) * static_cast<size_t>(num_experts);
  }
};

// LRU as a policy: experts of an iteration are used layer by layer.
class LruPolicy {
 public:
  LruPolicy(const ModelShape& shape, int num_records)
      : num_experts_(static_cast<size_t>(shape.num_experts)),
        cache_(shape.num_records(), static_cast<size_t>(num_records)) {}

  int64_t visit(int layer_idx, std::span<const int64_t> counts) {
    int64_t hits = 0;
    for (size_t e = 0; e < counts.size(); ++e) {
      const size_t record = static_cast<size_t>(layer_idx) * num_experts_ + e;
      if (counts[e] > 0 && cache_.use(record)) ++hits;
    }
    return hits;
  }

 private:
  size_t num_experts_;
  LruCache cache_;
};

// The policies of one budget while a recording goes by.
class Contest {
 public:
  Contest(const ModelShape& shape, int num_records, const ResidencyOptions& options)
      : residency_({.num_layers = shape.num_layers,
                    .num_experts = shape.num_experts,
                    .num_records = num_records,
                    .owned = {}},
                   options),
        lru_(shape, num_records),
        wideep_hits_{std::vector<LayerHits>(static_cast<size_t>(shape.num_layers))},
        lru_hits_(wideep_hits_) {}

  void run(const online::Iteration& iteration, bool judged) {
    residency_.begin_iteration(iteration.num_tokens);
    for (int layer = 0; layer < static_cast<int>(lru_hits_.layers.size()); ++layer) {
      const std::span<const int64_t> counts = iteration.counts_of(layer);
      const auto reads = static_cast<int64_t>(
          std::ranges::count_if(counts, [](int64_t tokens) { return tokens > 0; }));
      const auto missed = static_cast<int64_t>(residency_.visit(layer, counts).size());
      const int64_t lru = lru_.visit(layer, counts);
      if (!judged) continue;
      add(layer, reads, reads - missed, &wideep_hits_);
      add(layer, reads, lru, &lru_hits_);
    }
  }

  void write_to(BudgetHits* budget) {
    for (int layer = 0; layer < static_cast<int>(wideep_hits_.layers.size()); ++layer) {
      wideep_hits_.layers[static_cast<size_t>(layer)].num_records = residency_.num_resident(layer);
    }
    budget->wideep = wideep_hits_;
    budget->lru = lru_hits_;
  }

 private:
  static void add(int layer_idx, int64_t reads, int64_t hits, HitCounts* to) {
    LayerHits& layer = to->layers[static_cast<size_t>(layer_idx)];
    layer.reads += reads;
    layer.hits += hits;
  }

  ExpertResidency residency_;
  LruPolicy lru_;
  HitCounts wideep_hits_, lru_hits_;
};

// Goes through a part of the recording, and returns the reads of each record.
Reads run_part(const online::NextIteration& next, const ModelShape& shape, bool judged,
               std::vector<Contest>* contests) {
  Reads reads(shape.num_records());
  online::Iteration iteration;
  while (next(&iteration)) {
    for (Contest& contest : *contests) contest.run(iteration, judged);
    for (size_t i = 0; i < reads.size(); ++i) reads[i] += iteration.counts[i] > 0 ? 1 : 0;
  }
  return reads;
}

// The first record is the one that was read most.
std::vector<size_t> by_reads(const Reads& reads) {
  std::vector<size_t> order(reads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return reads[a] != reads[b] ? reads[a] > reads[b] : a < b; });
  return order;
}

// What the first num_records of the order hit.
HitCounts hits_of_set(std::span<const size_t> order, int num_records, const Reads& reads,
                      const ModelShape& shape) {
  const auto experts = static_cast<size_t>(shape.num_experts);
  HitCounts counts{std::vector<LayerHits>(static_cast<size_t>(shape.num_layers))};
  for (size_t i = 0; i < order.size(); ++i) {
    LayerHits& layer = counts.layers[order[i] / experts];
    layer.reads += reads[order[i]];
    if (i >= static_cast<size_t>(num_records)) continue;
    layer.hits += reads[order[i]];
    ++layer.num_records;
  }
  return counts;
}

std::vector<BudgetHits> judge_sets(const Reads& learned, const Reads& judged,
                                   const ModelShape& shape, std::span<const int> budgets) {
  const std::vector<size_t> fixed = by_reads(learned), oracle = by_reads(judged);
  std::vector<BudgetHits> result;
  for (const int budget : budgets) {
    result.push_back({.num_records = budget,
                      .fixed = hits_of_set(fixed, budget, judged, shape),
                      .oracle = hits_of_set(oracle, budget, judged, shape),
                      .wideep = {},
                      .lru = {}});
  }
  return result;
}

Reads reads_of(const balance::ModelLoad& load) {
  Reads reads;
  for (const std::vector<double>& layer : load.load) {
    for (const double tokens : layer) reads.push_back(static_cast<int64_t>(tokens));
  }
  return reads;
}

}  // namespace

double HitCounts::rate() const {
  LayerHits sum;
  for (const LayerHits& layer : layers) {
    sum.reads += layer.reads;
    sum.hits += layer.hits;
  }
  return sum.reads > 0 ? static_cast<double>(sum.hits) / static_cast<double>(sum.reads) : 0.0;
}

std::vector<BudgetHits> judge_iterations(const RecordedIterations& recorded,
                                         std::span<const int> budgets,
                                         const ResidencyOptions& options) {
  const ModelShape shape{recorded.num_layers, recorded.num_experts};
  std::vector<Contest> contests;
  for (const int budget : budgets) contests.emplace_back(shape, budget, options);
  const Reads learned = run_part(recorded.learned, shape, false, &contests);
  const Reads judged = run_part(recorded.judged, shape, true, &contests);
  std::vector<BudgetHits> result = judge_sets(learned, judged, shape, budgets);
  for (size_t i = 0; i < result.size(); ++i) contests[i].write_to(&result[i]);
  return result;
}

std::vector<BudgetHits> judge_counts(const balance::ModelLoad& learned,
                                     const balance::ModelLoad& judged,
                                     std::span<const int> budgets) {
  const ModelShape shape{static_cast<int>(judged.layers.size()), judged.num_experts};
  return judge_sets(reads_of(learned), reads_of(judged), shape, budgets);
}

}  // namespace wideep::residency
