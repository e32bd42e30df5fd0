// SPDX-License-Identifier: Apache-2.0
//
// Repair after the load of all 58 layers of a DeepSeek-V3 has drifted: the imbalance before and
// after, moves per layer, and the time for 58 layers. Beside it a new plan from scratch.
//
// Recorded loads where WIDEEP_DATA_DIR has them: planned for one workload, repaired for another,
// all pairs whose mean total variation is near the one asked for. Else lognormal loads and drift.
#include "wideep/balancer.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>

#include "balance/moves.h"
#include "balance/planner_wideep.h"
#include "balance/statistics_reader.h"

namespace wideep::balance {
namespace {

constexpr int kLayers = 58;
constexpr int kExperts = 256;

using Load = std::vector<double>;
using Window = std::vector<Load>;  // [layers][E]

struct Drift {
  const Window* from;
  const Window* to;
};

// Half the sum of differences of the experts' parts of all tokens, in percent; mean of layers.
double total_variation(const Window& a, const Window& b) {
  double sum = 0.0;
  for (size_t layer = 0; layer < a.size(); ++layer) {
    const double total_a = std::accumulate(a[layer].begin(), a[layer].end(), 0.0);
    const double total_b = std::accumulate(b[layer].begin(), b[layer].end(), 0.0);
    for (size_t e = 0; e < a[layer].size(); ++e) {
      sum += std::abs(a[layer][e] / total_a - b[layer][e] / total_b);
    }
  }
  return 50.0 * sum / static_cast<double>(a.size());
}

std::vector<Window> recorded_windows() {
  std::vector<Window> windows;
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  const std::string folder = std::string(data ? data : "") + "/expert_load_deepseek_v3";
  if (data == nullptr || !std::filesystem::exists(folder)) return windows;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const ExpertStatistics statistics = read_statistics(entry.path().string()).value();
    Window& window = windows.emplace_back();
    for (int i = 0; i < statistics.num_layers(); ++i) {
      const std::vector<int64_t> load = statistics.layer_load(i);
      window.emplace_back(load.begin(), load.end());
    }
  }
  return windows;
}

// The first one, then others that drift from it: 1, 6, 12 and 18 % total variation.
std::vector<Window> lognormal_windows() {
  std::mt19937 random(1);
  std::lognormal_distribution<double> tokens(5.0, 0.7);
  std::vector<Window> windows(1, Window(kLayers, Load(kExperts)));
  for (Load& load : windows[0]) {
    for (double& l : load) l = std::floor(tokens(random));
  }
  for (double sigma : {0.025, 0.15, 0.3, 0.45}) {
    std::lognormal_distribution<double> factor(0.0, sigma);
    Window window = windows[0];
    for (Load& load : window) {
      for (double& l : load) l = std::floor(l * factor(random));
    }
    windows.push_back(window);
  }
  return windows;
}

const std::vector<Window>& windows() {
  static const std::vector<Window> all = [] {
    const std::vector<Window> recorded = recorded_windows();
    return recorded.empty() ? lognormal_windows() : recorded;
  }();
  return all;
}

std::vector<Drift> drifts_near(double percent) {
  std::vector<Drift> drifts;
  for (const Window& from : windows()) {
    for (const Window& to : windows()) {
      const double found = total_variation(from, to);
      if (&from != &to && std::abs(found - percent) < 0.1 * percent + 0.3) {
        drifts.push_back({&from, &to});
      }
    }
  }
  return drifts;
}

PlanShape shape_of(const benchmark::State& state) {
  return {.num_experts = kExperts,
          .ep_size = static_cast<int>(state.range(0)),
          .num_slots = static_cast<int>(state.range(1))};
}

// One layer with the plan in use and its new load.
struct Case {
  LayerPlan plan;
  const Load* load;
};

std::vector<Case> make_cases(const benchmark::State& state, Split split) {
  const auto planner = make_wideep_planner(shape_of(state), {.split = split}).value();
  std::vector<Case> cases;
  for (const Drift& drift : drifts_near(static_cast<double>(state.range(2)))) {
    for (size_t layer = 0; layer < drift.from->size(); ++layer) {
      planner->plan((*drift.from)[layer], &cases.emplace_back().plan);
      cases.back().load = &(*drift.to)[layer];
    }
  }
  return cases;
}

// Runs `repair(case, &plan) → RepairReport` on all cases.
template <typename Repair>
void repair_all(benchmark::State& state, const std::vector<Case>& cases, Repair repair) {
  if (cases.empty()) return state.SkipWithError("no two windows drift by this much");
  LayerPlan plan;
  RepairReport sum;
  for (const Case& c : cases) {
    const RepairReport report = repair(c, &plan);
    sum.imbalance_before += report.imbalance_before;
    sum.imbalance_resplit += report.imbalance_resplit;
    sum.imbalance_after += report.imbalance_after;
    sum.moves += report.moves;
  }
  for (auto _ : state) {
    for (const Case& c : cases) benchmark::DoNotOptimize(repair(c, &plan));
  }
  const auto layers = static_cast<double>(cases.size());
  state.counters["before_%"] = 100 * sum.imbalance_before / layers;
  state.counters["resplit_%"] = 100 * sum.imbalance_resplit / layers;
  state.counters["after_%"] = 100 * sum.imbalance_after / layers;
  state.counters["moves"] = sum.moves / layers;
  state.counters["58_layers"] =
      benchmark::Counter(layers / kLayers, benchmark::Counter::kIsIterationInvariantRate |
                                               benchmark::Counter::kInvert);
}

void bench_repair(benchmark::State& state, Split split) {
  const auto repairer = make_repairer(shape_of(state), {.split = split}).value();
  repair_all(state, make_cases(state, split), [&](const Case& c, LayerPlan* plan) {
    return repairer->repair(*c.load, c.plan, plan);
  });
}
BENCHMARK_CAPTURE(bench_repair, weighted, Split::kWeighted)
    ->ArgNames({"R", "S", "drift_%"})
    ->ArgsProduct({{32}, {288, 320}, {1, 6, 12, 18}});
BENCHMARK_CAPTURE(bench_repair, equal, Split::kEqual)
    ->ArgNames({"R", "S", "drift_%"})
    ->ArgsProduct({{32}, {288}, {1, 6, 12, 18}});

void bench_new_plan(benchmark::State& state) {
  const auto planner = make_wideep_planner(shape_of(state), {.tolerance = 0.01}).value();
  repair_all(state, make_cases(state, Split::kEqual), [&](const Case& c, LayerPlan* plan) {
    planner->plan(*c.load, plan);
    RepairReport report;
    report.imbalance_before = report.imbalance_resplit =
        imbalance_ratio(rank_loads(c.plan.placement, *c.load, c.plan.shares));
    report.imbalance_after = imbalance_ratio(rank_loads(plan->placement, *c.load, plan->shares));
    report.moves = count_moves(c.plan.placement, plan->placement);
    return report;
  });
}
BENCHMARK(bench_new_plan)
    ->ArgNames({"R", "S", "drift_%"})
    ->ArgsProduct({{32}, {288}, {1, 6, 12, 18}});

}  // namespace
}  // namespace wideep::balance
