// SPDX-License-Identifier: Apache-2.0
//
// Time to choose replicas on one of 8 ranks, in ns per (token, expert): 256 experts, 288 slots, top
// 8, given tokens per rank, experts drawn from a skewed distribution.
//   round_robin   baseline: replicas in turn, as in engines without shares
//   no_replicas   SlotChooser if every expert has one slot
//   by_shares     shares of the placement (share_update: window)
//   by_counts     shares from this call's counts (share_update: iteration), including the re-split
//   resplit       the re-split alone, of the same counts
// Then the time to change the placement.
#include "ep/slot_choice.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

namespace wideep::ep {
namespace {

constexpr int kRanks = 8, kExperts = 256, kSlots = 288, kTopK = 8;

struct Input {
  explicit Input(int num_tokens) {
    std::mt19937 rng(1);
    std::lognormal_distribution<double> skew(0.0, 1.0);
    std::vector<double> load(kExperts);
    for (double& each : load) each = skew(rng);
    const balance::PlanShape shape{.num_experts = kExperts, .ep_size = kRanks, .num_slots = kSlots};
    const auto planner =
        balance::make_planner("wideep", shape, {.split = balance::Split::kWeighted});
    planner.value()->plan(load, &plan);
    std::discrete_distribution<int32_t> expert(load.begin(), load.end());
    counts.assign(static_cast<size_t>(kRanks) * kExperts, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int i = 0; i < num_tokens * kTopK; ++i) {
        const int32_t chosen = expert(rng);
        ++counts[static_cast<size_t>(rank) * kExperts + chosen];
        if (rank == kRank) experts.push_back(chosen);
      }
    }
    slots.resize(experts.size());
  }
  std::span<const int32_t> own_counts() const {
    return std::span(counts).subspan(size_t{kRank} * kExperts, kExperts);
  }

  static constexpr int kRank = 3;
  balance::LayerPlan plan;
  std::vector<int32_t> counts;   // [kRanks, kExperts]
  std::vector<int32_t> experts;  // of this rank
  std::vector<int32_t> slots;
};

SlotChooser chooser(const balance::Placement& placement, std::span<const double> shares) {
  SlotChooser chooser({.ep_size = placement.ep_size,
                       .num_experts = placement.num_experts,
                       .slots_per_rank = placement.slots_per_rank()},
                      Input::kRank);
  chooser.set_placement(0, placement, shares);
  return chooser;
}

void count_pairs(benchmark::State& state, const Input& input) {
  state.counters["pair"] = benchmark::Counter(
      static_cast<double>(input.experts.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void round_robin(benchmark::State& state) {
  Input input(static_cast<int>(state.range(0)));
  const auto table = balance::make_routing_table(input.plan.placement);
  std::vector<int64_t> turn;
  for (auto _ : state) {
    turn.assign(kExperts, Input::kRank);
    for (size_t i = 0; i < input.experts.size(); ++i) {
      const auto replicas = table.replicas(input.experts[i]);
      input.slots[i] = replicas[turn[input.experts[i]]++ % static_cast<int64_t>(replicas.size())];
    }
    benchmark::DoNotOptimize(input.slots.data());
  }
  count_pairs(state, input);
}

void no_replicas(benchmark::State& state) {
  Input input(static_cast<int>(state.range(0)));
  SlotChooser linear = chooser(*balance::linear_placement(kExperts, kRanks), {});
  for (auto _ : state) {
    linear.choose(0, input.experts, input.slots);
    benchmark::DoNotOptimize(input.slots.data());
  }
  count_pairs(state, input);
}

void by_shares(benchmark::State& state) {
  Input input(static_cast<int>(state.range(0)));
  SlotChooser given = chooser(input.plan.placement, input.plan.shares);
  for (auto _ : state) {
    given.split_by_given_shares(0, input.own_counts());
    given.choose(0, input.experts, input.slots);
    benchmark::DoNotOptimize(input.slots.data());
  }
  count_pairs(state, input);
}

void by_counts(benchmark::State& state) {
  Input input(static_cast<int>(state.range(0)));
  SlotChooser counting = chooser(input.plan.placement, {});
  for (auto _ : state) {
    counting.split_by_counts(0, input.counts);
    counting.choose(0, input.experts, input.slots);
    benchmark::DoNotOptimize(input.slots.data());
  }
  count_pairs(state, input);
}

void resplit(benchmark::State& state) {
  const Input input(static_cast<int>(state.range(0)));
  balance::Resplitter resplitter(input.plan.placement);
  std::vector<double> load(kExperts, 0.0), shares(kSlots);
  for (size_t i = 0; i < input.counts.size(); ++i) load[i % kExperts] += input.counts[i];
  for (auto _ : state) benchmark::DoNotOptimize(resplitter.resplit(load, shares));
  count_pairs(state, input);
}

void set_placement(benchmark::State& state) {
  const Input input(64);
  SlotChooser changing = chooser(input.plan.placement, {});
  for (auto _ : state) changing.set_placement(0, input.plan.placement, input.plan.shares);
}

BENCHMARK(round_robin)->RangeMultiplier(8)->Range(1, 512);
BENCHMARK(no_replicas)->RangeMultiplier(8)->Range(1, 512);
BENCHMARK(by_shares)->RangeMultiplier(8)->Range(1, 512);
BENCHMARK(by_counts)->RangeMultiplier(8)->Range(1, 512);
BENCHMARK(resplit)->RangeMultiplier(8)->Range(1, 512);
BENCHMARK(set_placement);

}  // namespace
}  // namespace wideep::ep
