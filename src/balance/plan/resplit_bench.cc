// SPDX-License-Identifier: Apache-2.0
//
// One layer's re-split, ns, on lognormal loads that drift from the load the placement was made for.
//   ring   replicated experts placed consecutively around the ranks, the others by LPT: exact in
//          one pass where S − E = R, augmenting paths where more laps are used
//   trt    TRT's placement, which connects ranks at random
// Counters: the imbalance left, in percent of the mean, and the layers with any.
#include "wideep/balancer.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "plan/placement_trt.h"
#include "plan/replication.h"

namespace wideep::balance {
namespace {

constexpr int kLayers = 58;

struct Layer {
  Placement placement;
  std::vector<double> load;  // after the drift
};

// The replicas of replicated experts one behind the other, hottest first; an expert starts on the
// rank where the last one ended. A full rank is passed over.
class RingBuilder {
 public:
  RingBuilder(std::span<const double> load, std::span<const int> replicas, int ep_size)
      : load_(load), replicas_(replicas), ranks_(static_cast<size_t>(ep_size)) {
    slots_per_rank_ =
        static_cast<size_t>(std::accumulate(replicas.begin(), replicas.end(), 0) / ep_size);
    rank_loads_.resize(ranks_.size());
  }

  Placement build() {
    std::vector<int32_t> order(load_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return part(a) > part(b); });
    for (int32_t expert : order) {
      if (replicas_[static_cast<size_t>(expert)] > 1) lay(expert);
    }
    for (int32_t expert : order) {
      if (replicas_[static_cast<size_t>(expert)] == 1) put(expert, coldest());
    }
    Placement placement{static_cast<int>(load_.size()), static_cast<int>(ranks_.size()), {}};
    for (const auto& rank : ranks_) {
      placement.slot_to_expert.insert(placement.slot_to_expert.end(), rank.begin(), rank.end());
    }
    return placement;
  }

 private:
  double part(int32_t expert) const {
    return load_[static_cast<size_t>(expert)] / replicas_[static_cast<size_t>(expert)];
  }
  bool full(size_t rank) const { return ranks_[rank].size() == slots_per_rank_; }
  bool holds(size_t rank, int32_t expert) const {
    return std::find(ranks_[rank].begin(), ranks_[rank].end(), expert) != ranks_[rank].end();
  }
  void put(int32_t expert, size_t rank) {
    ranks_[rank].push_back(expert);
    rank_loads_[rank] += part(expert);
  }
  void lay(int32_t expert) {
    for (int left = replicas_[static_cast<size_t>(expert)]; left > 0;) {
      if (!full(rank_) && !holds(rank_, expert)) {
        put(expert, rank_);
        --left;
      }
      if (left > 0) rank_ = (rank_ + 1) % ranks_.size();
    }
  }
  size_t coldest() const {
    size_t best = ranks_.size();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (full(rank)) continue;
      if (best == ranks_.size() || rank_loads_[rank] < rank_loads_[best]) best = rank;
    }
    return best;
  }

  std::span<const double> load_;
  std::span<const int> replicas_;
  std::vector<std::vector<int32_t>> ranks_;
  std::vector<double> rank_loads_;
  size_t slots_per_rank_;
  size_t rank_ = 0;
};

std::vector<Layer> make_layers(int num_experts, int ep_size, int num_slots, bool ring,
                               double drift) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> tokens(7.0, 0.7), factor(0.0, drift);
  std::vector<Layer> layers(kLayers);
  for (Layer& layer : layers) {
    std::vector<double> planned(static_cast<size_t>(num_experts));
    for (double& load : planned) load = std::round(tokens(random));
    const std::vector<int> replicas = replicate_trt(planned, num_slots);
    layer.placement = ring ? RingBuilder(planned, replicas, ep_size).build()
                           : place_trt(planned, replicas, ep_size);
    for (double load : planned) layer.load.push_back(std::round(load * factor(random)));
  }
  return layers;
}

void bench_resplit(benchmark::State& state, bool ring) {
  const auto num_experts = static_cast<int>(state.range(0));
  const auto ep_size = static_cast<int>(state.range(1));
  const auto num_slots = static_cast<int>(state.range(2));
  const double drift = static_cast<double>(state.range(3)) / 100;
  const std::vector<Layer> layers = make_layers(num_experts, ep_size, num_slots, ring, drift);
  std::vector<Resplitter> resplitters;
  for (const Layer& layer : layers) resplitters.emplace_back(layer.placement);
  Shares shares(static_cast<size_t>(num_slots));
  double imbalance = 0.0;
  int stuck = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const double total = std::accumulate(layers[i].load.begin(), layers[i].load.end(), 0.0);
    imbalance += resplitters[i].resplit(layers[i].load, shares) * ep_size / total - 1.0;
    stuck += !resplitters[i].bottleneck_ranks().empty();
  }
  for (auto _ : state) {
    for (size_t i = 0; i < layers.size(); ++i) {
      benchmark::DoNotOptimize(resplitters[i].resplit(layers[i].load, shares));
    }
  }
  state.counters["layer"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kLayers,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["left_%"] = 100.0 * imbalance / kLayers;
  state.counters["stuck"] = stuck;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"E", "R", "S", "drift_%"});
  for (int drift : {3, 10, 30}) {
    for (const auto& [experts, ranks, slots] : {std::tuple{256, 32, 288},
                                                {256, 32, 320},
                                                {256, 64, 320},
                                                {256, 144, 432},
                                                {1024, 256, 1280}}) {
      bench->Args({experts, ranks, slots, drift});
    }
  }
}

BENCHMARK_CAPTURE(bench_resplit, ring, true)->Apply(sizes);
BENCHMARK_CAPTURE(bench_resplit, trt, false)->Apply(sizes);

}  // namespace
}  // namespace wideep::balance
