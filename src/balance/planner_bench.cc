// SPDX-License-Identifier: Apache-2.0
//
// Time to plan all 58 layers of a DeepSeek-V3, with the imbalance that the plan leaves. Loads are
// recorded ones where WIDEEP_DATA_DIR has them, else lognormal.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "balance/placement_trt.h"
#include "balance/planner_wideep.h"
#include "balance/statistics_reader.h"

namespace wideep::balance {
namespace {

using Loads = std::vector<std::vector<double>>;  // [layers][E]

void append(const ExpertStatistics& statistics, Loads* loads) {
  for (int i = 0; i < statistics.num_layers(); ++i) {
    const std::vector<int64_t> load = statistics.layer_load(i);
    loads->emplace_back(load.begin(), load.end());
  }
}

Loads lognormal_loads(int layers, int experts) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> tokens(5.0, 0.7);
  Loads loads(static_cast<size_t>(layers));
  for (auto& load : loads) {
    for (int e = 0; e < experts; ++e) load.push_back(std::floor(tokens(random)));
  }
  return loads;
}

// Eight recordings of 58 layers.
const Loads& deepseek_loads() {
  static const Loads loads = [] {
    Loads read;
    const char* data = std::getenv("WIDEEP_DATA_DIR");
    const std::string folder = std::string(data ? data : "") + "/expert_load_deepseek_v3";
    if (data == nullptr || !std::filesystem::exists(folder)) return lognormal_loads(8 * 58, 256);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".json") continue;
      append(read_statistics(entry.path().string()).value(), &read);
    }
    return read;
  }();
  return loads;
}

double imbalance(const LayerPlan& plan, const std::vector<double>& load) {
  return imbalance_ratio(rank_loads(plan.placement, load, plan.shares));
}

// One iteration plans every recording; the time shown is that of 58 layers.
template <typename Plan>
void plan_all(benchmark::State& state, Plan plan_layer) {
  const Loads& loads = deepseek_loads();
  LayerPlan plan;
  double sum = 0;
  for (const auto& load : loads) {
    plan_layer(load, &plan);
    sum += imbalance(plan, load);
  }
  for (auto _ : state) {
    for (const auto& load : loads) plan_layer(load, &plan);
    benchmark::DoNotOptimize(plan.placement.slot_to_expert.data());
  }
  const double layers = static_cast<double>(loads.size());
  state.counters["imbalance_%"] = 100 * sum / layers;
  state.counters["58_layers"] = benchmark::Counter(
      layers / 58, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void bench_wideep(benchmark::State& state) {
  const PlanShape shape{.num_experts = 256,
                        .ep_size = static_cast<int>(state.range(0)),
                        .num_slots = static_cast<int>(state.range(1))};
  const PlannerOptions options{.tolerance = 1e-5 * static_cast<double>(state.range(2))};
  const auto planner = make_wideep_planner(shape, options);
  plan_all(state,
           [&](const std::vector<double>& load, LayerPlan* plan) { (*planner)->plan(load, plan); });
}
BENCHMARK(bench_wideep)
    ->ArgNames({"R", "S", "tol_1e-5"})
    ->Args({32, 288, 500})
    ->Args({32, 288, 100})
    ->Args({32, 288, 25})
    ->Args({32, 320, 100})
    ->Args({36, 288, 100})
    ->Args({64, 320, 100})
    ->Args({32, 256, 100})
    ->Args({144, 288, 100});

// A straightforward heap implementation: the yardstick of this machine.
void bench_trt(benchmark::State& state) {
  plan_all(state, [&](const std::vector<double>& load, LayerPlan* plan) {
    plan->placement =
        *plan_layer_trt(load, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
    plan->shares = equal_shares(plan->placement);
  });
}
BENCHMARK(bench_trt)->ArgNames({"R", "S"})->Args({32, 288})->Args({144, 288});

}  // namespace
}  // namespace wideep::balance
