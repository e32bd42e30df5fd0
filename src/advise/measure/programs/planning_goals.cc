// SPDX-License-Identifier: Apache-2.0
//
// Plans for loads that were not planned for, plans of few slots per rank, of very many ranks and of
// very small shapes: what was reached before, the goal, and what is reached now. One thread.
//
//   planning_goals [--rounds N] [--part robust|speed|small|bound] [--instances FILE]
//                  [--shape E/R/S] [--split equal|weighted] [--planner NAME]
//
// Parts:
//   robust  Each recording of DeepSeek-V3 in turn is the load that is served; the other seven are
//           the windows that the plan is made from, which never sees the eighth. Imbalance with the
//           plan's own shares (equal ones for equal split) and after new shares from the served
//           load. Needs the recordings in WIDEEP_DATA_DIR. Takes ten minutes; --shape, --split and
//           --planner choose among its rows.
//   speed   Plans where TensorRT-LLM's greedy (placement_trt.h) is hard to beat, in time divided by
//           the greedy's in the same rounds.
//   small   Shapes so small that the optimum is known: scripts/balance_optimum.py reads the
//           instances that --instances writes, and an integer program solves them.
//   bound   How far the proven lower bound of weighted split is below what is reached.
//
// Imbalance is max / mean - 1 of the rank loads in per cent, mean over layers or instances.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>

#include "command_line/command_line.h"
#include "measure/programs/loads.h"
#include "measure/programs/stopwatch.h"
#include "plan/assessment.h"
#include "plan/placement_trt.h"
#include "plan/robust.h"
#include "wideep/balancer.h"

namespace wideep::measure {
namespace {

using balance::LayerPlan;
using balance::PlanShape;
using balance::RobustMethod;
using balance::RobustOptions;
using balance::Split;
using balance::WindowedLoad;

std::string name_of(const PlanShape& shape) {
  return fmt::format("{}/{}/{}", shape.num_experts, shape.ep_size, shape.num_slots);
}

const char* name_of(Split split) { return split == Split::kEqual ? "equal" : "weighted"; }

double percent(const LayerPlan& plan, const Load& load) {
  return 100 * balance::imbalance_ratio(plan.placement, load, plan.shares);
}

// --- robust -----------------------------------------------------------------------------------

struct Served {
  double own = 0.0;      // with the plan's shares
  double resplit = 0.0;  // with the best shares for what is served
};

WindowedLoad load_of(const std::vector<Window>& windows) {
  WindowedLoad load{
      .num_experts = static_cast<int>(windows[0].layers[0].size()), .layers = {}, .load = {}};
  for (size_t layer = 0; layer < windows[0].layers.size(); ++layer) {
    load.layers.push_back(static_cast<int>(layer));
    auto& added = load.load.emplace_back();
    for (const Window& window : windows) added.push_back(window.layers[layer]);
  }
  return load;
}

// A planner for windows of load.
using PlanWindows = std::function<balance::PlannedModel(const WindowedLoad&)>;

// Mean over the windows, each of which is planned for by the others.
Served leave_one_out(const std::vector<Window>& windows, const PlanWindows& plan) {
  Served mean;
  for (size_t served = 0; served < windows.size(); ++served) {
    std::vector<Window> others = windows;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(served));
    const balance::PlannedModel model = plan(load_of(others));
    const WindowedLoad load = load_of({windows[served]});
    const auto count = static_cast<double>(windows.size());
    mean.own += 100 * balance::figures_in_windows(load, model, false).mean / count;
    mean.resplit += 100 * balance::figures_in_windows(load, model, true).mean / count;
  }
  return mean;
}

PlanWindows robust_planner(const PlanShape& shape, Split split, const RobustOptions& options) {
  return [=](const WindowedLoad& load) {
    return balance::plan_robust(load, shape, {.split = split}, options)->model;
  };
}

// One of the planners of the field, on the sum of the windows.
PlanWindows other_planner(const std::string& name, const PlanShape& shape, Split split) {
  return [=](const WindowedLoad& load) {
    const auto planner = balance::make_planner(name, shape, {.split = split}).value();
    balance::PlannedModel model;
    for (size_t i = 0; i < load.layers.size(); ++i) {
      LayerPlan plan;
      planner->plan(balance::expected_load(load.load[i], {}), &plan);
      model.placement.layers[load.layers[i]] = std::move(plan.placement);
      model.shares[load.layers[i]] = std::move(plan.shares);
    }
    return model;
  };
}

struct RobustGoal {
  PlanShape shape;
  const char* before;
  const char* goal;
};

}  // namespace

// Of the rows of part robust; empty: all.
struct Filter {
  std::string shape, split, planner;

  static bool passes(const std::string& wanted, const std::string& name) {
    return wanted.empty() || wanted == name;
  }
};

namespace {

void measure_robust(const Filter& filter) {
  const std::vector<Window> windows = deepseek_windows();
  if (windows.empty()) {
    std::puts("robust: WIDEEP_DATA_DIR has no expert_load_deepseek_v3: skipped");
    return;
  }
  const RobustGoal goals[] = {{{256, 32, 288}, "4.8 / 0.22", "stays"},
                              {{256, 72, 288}, "20.3 / 15.9", "14.5 / 12"},
                              {{256, 144, 288}, "59-89", "52 / 50"},
                              {{256, 144, 432}, "40 / 15", "16 / 7"}};
  fmt::print("Leave one of {} recordings out: own shares / re-split\n", windows.size());
  fmt::print("{:<14}{:<10}{:<12}{:<10}{:>20}  {}\n", "shape", "split", "before", "goal", "reached",
             "planned by");
  for (const RobustGoal& each : goals) {
    if (!Filter::passes(filter.shape, name_of(each.shape))) continue;
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      if (!Filter::passes(filter.split, name_of(split))) continue;
      const auto print = [&](const std::string& planner, const PlanWindows& plan) {
        if (!Filter::passes(filter.planner, planner)) return;
        const Served served = leave_one_out(windows, plan);
        fmt::print("{:<14}{:<10}{:<12}{:<10}{:>10.2f} / {:<7.2f}  {}\n", name_of(each.shape),
                   name_of(split), each.before, each.goal, served.own, served.resplit, planner);
        std::fflush(stdout);
      };
      print("deepseek", other_planner("deepseek", each.shape, split));
      for (const char* method : {"sum", "windows", "counts"}) {
        const auto chosen = balance::parse_robust_method(method);
        if (!chosen.ok()) continue;
        print(method, robust_planner(each.shape, split, {.method = *chosen}));
      }
      print("auto", robust_planner(each.shape, split, {}));
    }
  }
}

// --- speed ------------------------------------------------------------------------------------

std::vector<Load> lognormal_loads(int num_experts, int count, double sigma) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> tokens(8.0, sigma);
  std::vector<Load> loads(static_cast<size_t>(count));
  for (Load& load : loads) {
    for (int e = 0; e < num_experts; ++e) load.push_back(std::floor(tokens(random)));
  }
  return loads;
}

// Recorded loads have 256 experts; two layers side by side make a load of 512.
std::vector<Load> recorded_loads(const std::vector<Window>& windows, int num_experts) {
  std::vector<Load> loads;
  if (windows.empty()) return loads;
  const std::vector<Load>& layers = windows[0].layers;
  const auto joined = static_cast<size_t>(num_experts) / layers[0].size();
  for (size_t i = 0; i + joined <= layers.size(); i += joined) {
    Load& load = loads.emplace_back();
    for (size_t j = 0; j < joined; ++j) {
      load.insert(load.end(), layers[i + j].begin(), layers[i + j].end());
    }
  }
  return loads;
}

struct SpeedGoal {
  PlanShape shape;
  const char* before;
  const char* goal;
};

void measure_speed(int rounds) {
  const SpeedGoal goals[] = {
      {{256, 1024, 1024}, "14.14 % in 16.5 x", "the same in 1 x"},
      {{256, 256, 512}, "1.6 % in 10.8 x", "0.6 % in 4 x"},
      {{512, 1024, 2048}, "1.4 % in 4.7 x", "0.6 % in 3 x"},
  };
  const std::vector<Window> windows = deepseek_windows();
  fmt::print("Beside TensorRT-LLM's greedy: imbalance, processor time of a layer\n");
  fmt::print("{:<16}{:<20}{:<20}{:<18}{:>10}{:>10}{:>10}{:>12}{:>12}{:>8}\n", "shape", "before",
             "goal", "load", "TRT", "reached", "bound", "TRT us", "us", "x TRT");
  for (const SpeedGoal& each : goals) {
    std::vector<std::pair<std::string, std::vector<Load>>> sets = {
        {"lognormal 0.7", lognormal_loads(each.shape.num_experts, 24, 0.7)},
        {"lognormal 1.0", lognormal_loads(each.shape.num_experts, 24, 1.0)}};
    const std::vector<Load> recorded = recorded_loads(windows, each.shape.num_experts);
    if (!recorded.empty()) sets.emplace_back("recorded", recorded);
    for (const auto& [name, loads] : sets) {
      const auto planner = balance::make_planner("wideep", each.shape, {}).value();
      LayerPlan plan;
      double ours = 0, trt = 0, bound = 0;
      const auto count = static_cast<double>(loads.size());
      for (const Load& load : loads) {
        planner->plan(load, &plan);
        ours += percent(plan, load) / count;
        const auto greedy =
            *balance::plan_layer_trt(load, each.shape.ep_size, each.shape.num_slots);
        trt += percent({greedy, balance::equal_shares(greedy)}, load) / count;
        bound += 100 * balance::imbalance_lower_bound(load, each.shape, Split::kEqual) / count;
      }
      const std::vector<double> seconds = interleaved_medians(
          {[&] {
             for (const Load& load : loads) {
               (void)balance::plan_layer_trt(load, each.shape.ep_size, each.shape.num_slots);
             }
           },
           [&] {
             for (const Load& load : loads) planner->plan(load, &plan);
           }},
          rounds);
      fmt::print(
          "{:<16}{:<20}{:<20}{:<18}{:>8.3f} %{:>8.3f} %{:>8.3f} %{:>12.1f}{:>12.1f}{:>8.2f}\n",
          name_of(each.shape), each.before, each.goal, name, trt, ours, bound,
          1e6 * seconds[0] / count, 1e6 * seconds[1] / count, seconds[1] / seconds[0]);
    }
  }
}

// --- small ------------------------------------------------------------------------------------

struct SmallGoal {
  PlanShape shape;
  Split split;
  const char* before;
  const char* goal;
};

constexpr int kInstances = 20;

// Per cent.
struct Imbalances {
  double ours = 0.0, eplb = 0.0, bound = 0.0;
};

// One line of JSON for each instance: shape, split, load, and what wideep and EPLB reach.
void write_instance(std::ofstream& out, const SmallGoal& each, const Load& load,
                    const Imbalances& reached) {
  out << fmt::format(
      "{{\"experts\": {}, \"ranks\": {}, \"slots\": {}, \"split\": \"{}\", \"wideep\": {}, "
      "\"eplb\": {}, \"bound\": {}, \"load\": [{}]}}\n",
      each.shape.num_experts, each.shape.ep_size, each.shape.num_slots, name_of(each.split),
      reached.ours, reached.eplb, reached.bound, fmt::join(load, ", "));
}

int measure_small(const std::string& file) {
  const SmallGoal goals[] = {
      {{12, 6, 18}, Split::kEqual, "2.4", "0.8"},
      {{16, 8, 24}, Split::kEqual, "2.2", "1.4"},
      {{14, 8, 16}, Split::kWeighted, "21.0", "19.3, bound 18"},
  };
  std::ofstream out;
  if (!file.empty()) {
    out.open(file);
    if (!out) {
      fmt::print(stderr, "--instances: cannot write {}\n", file);
      return 2;
    }
  }
  fmt::print("Small shapes, {} instances each, loads lognormal(0.7)\n", kInstances);
  fmt::print("{:<12}{:<10}{:<10}{:<16}{:>10}{:>10}{:>10}{:>22}\n", "shape", "split", "before",
             "goal", "EPLB", "reached", "bound", "worse than EPLB");
  for (const SmallGoal& each : goals) {
    const auto planner = balance::make_planner("wideep", each.shape, {.split = each.split}).value();
    const auto eplb = balance::make_planner("deepseek", each.shape, {.split = each.split}).value();
    Imbalances mean;
    int worse = 0;
    for (const Load& load : lognormal_loads(each.shape.num_experts, kInstances, 0.7)) {
      LayerPlan plan, peer;
      planner->plan(load, &plan);
      eplb->plan(load, &peer);
      const Imbalances reached{
          .ours = percent(plan, load),
          .eplb = percent(peer, load),
          .bound = 100 * balance::imbalance_lower_bound(load, each.shape, each.split)};
      mean.ours += reached.ours / kInstances;
      mean.eplb += reached.eplb / kInstances;
      mean.bound += reached.bound / kInstances;
      worse += reached.ours > reached.eplb + 1e-6 &&
               !balance::has_two_replicas_on_a_rank(peer.placement);
      if (out.is_open()) write_instance(out, each, load, reached);
    }
    fmt::print("{:<12}{:<10}{:<10}{:<16}{:>8.2f} %{:>8.2f} %{:>8.2f} %{:>22}\n",
               name_of(each.shape), name_of(each.split), each.before, each.goal, mean.eplb,
               mean.ours, mean.bound, fmt::format("{} of {}", worse, kInstances));
  }
  return 0;
}

// How often planner wideep is worse than EPLB, over random shapes with several loads each.
void compare_with_eplb() {
  std::mt19937 random(3);
  int plans = 0, worse = 0;
  double max = 0.0;
  for (int i = 0; i < 400; ++i) {
    const int ranks = 2 + static_cast<int>(random() % 40),
              per_rank = 1 + static_cast<int>(random() % 6);
    const int slots = ranks * per_rank;
    const int fewest = std::max(per_rank, slots / 2);
    const int experts =
        fewest + static_cast<int>(random() % static_cast<unsigned>(slots - fewest + 1));
    const PlanShape shape{experts, ranks, slots};
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      const auto planner = balance::make_planner("wideep", shape, {.split = split}).value();
      const auto eplb = balance::make_planner("deepseek", shape, {.split = split}).value();
      std::lognormal_distribution<double> tokens(8.0, 0.3 + 0.3 * static_cast<double>(i % 5));
      Load load;
      for (int e = 0; e < experts; ++e) load.push_back(std::floor(tokens(random)));
      LayerPlan plan, peer;
      planner->plan(load, &plan);
      eplb->plan(load, &peer);
      // Two replicas on one rank are what wideep rules out.
      if (balance::has_two_replicas_on_a_rank(peer.placement)) continue;
      ++plans;
      const double by = percent(plan, load) - percent(peer, load);
      if (by <= 0.1) continue;  // both within the tolerance at which the search stops
      ++worse;
      max = std::max(max, by);
    }
  }
  fmt::print(
      "random shapes: worse than EPLB by more than 0.1 points in {} of {} plans, at most {:.2f}"
      " points\n",
      worse, plans, max);
}

// --- bound ------------------------------------------------------------------------------------

void measure_bound() {
  const std::vector<Window> windows = deepseek_windows();
  std::vector<Load> loads = lognormal_loads(256, 24, 0.7);
  if (!windows.empty()) loads = windows[0].layers;
  fmt::print("Weighted split: bound and reached ({})\n",
             windows.empty() ? "lognormal(0.7)" : windows[0].name);
  for (const PlanShape& shape :
       {PlanShape{256, 144, 288}, PlanShape{256, 48, 288}, PlanShape{256, 64, 256}}) {
    const auto planner =
        balance::make_planner("wideep", shape, {.split = Split::kWeighted}).value();
    double bound = 0, reached = 0;
    LayerPlan plan;
    const auto count = static_cast<double>(loads.size());
    for (const Load& load : loads) {
      planner->plan(load, &plan);
      reached += percent(plan, load) / count;
      bound += 100 * balance::imbalance_lower_bound(load, shape, Split::kWeighted) / count;
    }
    fmt::print("{:<14} bound {:.2f} %, reached {:.2f} %\n", name_of(shape), bound, reached);
  }
}

}  // namespace

int run(int rounds, const std::string& part, const std::string& instances, const Filter& filter) {
  const auto wanted = [&](const char* name) { return part == "all" || part == name; };
  if (wanted("robust")) measure_robust(filter);
  if (wanted("speed")) measure_speed(rounds);
  if (wanted("bound")) measure_bound();
  if (!wanted("small")) return 0;
  compare_with_eplb();
  return measure_small(instances);
}

}  // namespace wideep::measure

int main(int argc, char** argv) {
  wideep::command_line::Program program("Measures wideep's planners against their goals");
  int rounds = 9;
  std::string part = "all", instances;
  program.add_option("--rounds", rounds, "Number of rounds; times are medians over them")
      .positive();
  program.add_option("--part", part, "robust, speed, small, bound or all (default)")
      .one_of({"all", "robust", "speed", "small", "bound"});
  program.add_option("--instances", instances,
                     "File to write the small instances to, for scripts/balance_optimum.py");
  wideep::measure::Filter filter;
  program.add_option("--shape", filter.shape, "Of part robust only: experts/ranks/slots");
  program.add_option("--split", filter.split, "Of part robust only: equal or weighted");
  program.add_option("--planner", filter.planner,
                     "Of part robust only: deepseek, sum, windows, counts or auto");
  if (const auto code = program.parse_main(argc, argv)) return *code;
  return wideep::measure::run(rounds, part, instances, filter);
}
