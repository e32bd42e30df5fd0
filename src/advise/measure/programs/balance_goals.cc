// SPDX-License-Identifier: Apache-2.0
//
// The goals of wideep's balancer and what it reaches, in one table. One thread.
//
//   balance_goals [--rounds N]
//
// Times are medians of processor time over rounds in which everything runs in turn. The yardstick
// in the same rounds is a simple heap implementation of TensorRT-LLM's planner (placement_trt.h):
// "yes, by ratio" means that this machine is slower than the one on which the time goal was set,
// but that the time, divided by the yardstick's, meets the goal.
//
// Imbalance is max / mean - 1 of the rank loads in per cent, mean over all layers. Loads are
// recorded ones of DeepSeek-V3 (58 layers × 256 experts, 8 recordings) if WIDEEP_DATA_DIR has them;
// otherwise synthetic ones, for which there are no goals of imbalance and moves.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "command_line/command_line.h"
#include "measure/programs/loads.h"
#include "measure/programs/stopwatch.h"
#include "plan/placement_trt.h"
#include "plan/search/search.h"
#include "wideep/balancer.h"

namespace wideep::measure {
namespace {

using balance::LayerPlan;
using balance::PlanShape;
using balance::Split;

constexpr double kLayers = 58;  // of a model: times are for so many
constexpr double kYardstickMs = 1.13;
constexpr int kRanks = 32;
constexpr PlanShape kShape{.num_experts = 256, .ep_size = kRanks, .num_slots = 288};

struct Row {
  std::string what;
  std::string goal;
  std::string measured;
  std::string limit;   // what no planner could be below, or what the yardstick reaches
  bool good = true;    // as far as it is not a matter of time
  double goal_ms = 0;  // for 58 layers; 0: none
  std::function<void()> run;
  double models = 1;  // of 58 layers that one run plans
};

double percent(const LayerPlan& plan, const Load& load) {
  return 100 * balance::imbalance_ratio(balance::rank_loads(plan.placement, load, plan.shares));
}

std::vector<Load> layers_of(const std::vector<Window>& windows) {
  std::vector<Load> loads;
  for (const Window& window : windows) {
    loads.insert(loads.end(), window.layers.begin(), window.layers.end());
  }
  return loads;
}

template <typename T, typename Value>
double mean_of(const std::vector<T>& items, Value value) {
  double sum = 0;
  for (const T& item : items) sum += value(item);
  return sum / static_cast<double>(items.size());
}

double mean_bound(const std::vector<Load>& loads, const PlanShape& shape, Split split) {
  return mean_of(loads, [&](const Load& load) {
    return 100 * balance::imbalance_lower_bound(load, shape, split);
  });
}

// A planner with the loads it is measured on.
class Planning {
 public:
  Planning(std::vector<Load> loads, const PlanShape& shape, const balance::PlannerOptions& options)
      : loads_(std::move(loads)),
        shape_(shape),
        split_(options.split),
        planner_(balance::make_planner("wideep", shape, options).value()) {}

  void run() {
    for (const Load& load : loads_) planner_->plan(load, &plan_);
  }
  std::vector<double> imbalances() {
    std::vector<double> result;
    for (const Load& load : loads_) {
      planner_->plan(load, &plan_);
      result.push_back(percent(plan_, load));
    }
    return result;
  }
  double mean_imbalance() {
    return mean_of(imbalances(), [](double imbalance) { return imbalance; });
  }
  double bound() const { return mean_bound(loads_, shape_, split_); }
  double models() const { return static_cast<double>(loads_.size()) / kLayers; }

 private:
  std::vector<Load> loads_;
  PlanShape shape_;
  Split split_;
  std::unique_ptr<balance::LayerPlanner> planner_;
  LayerPlan plan_;
};

// Layers that are planned for one load and then get another load.
class Drifted {
 public:
  Drifted(const std::vector<Drift>& drifts, Split split) {
    const auto planner = balance::make_planner("wideep", kShape, {.split = split}).value();
    repairer_ = balance::make_repairer(kShape, {.split = split}).value();
    for (const Drift& drift : drifts) {
      total_variation_ +=
          total_variation(drift.from, drift.to) / static_cast<double>(drifts.size());
      for (size_t layer = 0; layer < drift.from.layers.size(); ++layer) {
        Case& added = cases_.emplace_back();
        planner->plan(drift.from.layers[layer], &added.plan);
        added.resplitter.reset(added.plan.placement);
        added.load = drift.to.layers[layer];
      }
    }
  }

  double drift() const { return total_variation_; }
  double models() const { return static_cast<double>(cases_.size()) / kLayers; }
  double bound(Split split) const {
    return mean_of(cases_, [&](const Case& each) {
      return 100 * balance::imbalance_lower_bound(each.load, kShape, split);
    });
  }

  void resplit() {
    for (Case& each : cases_) each.resplitter.resplit(each.load, each.plan.shares);
  }
  double resplit_imbalance() {
    resplit();
    return mean_of(cases_, [](const Case& each) { return percent(each.plan, each.load); });
  }

  void repair() {
    for (const Case& each : cases_) repairer_->repair(each.load, each.plan, &repaired_);
  }
  balance::RepairReport mean_report() {
    balance::RepairReport sum;
    for (const Case& each : cases_) {
      const auto report = repairer_->repair(each.load, each.plan, &repaired_);
      sum.imbalance_after += 100 * report.imbalance_after / static_cast<double>(cases_.size());
      sum.moves += report.moves;
    }
    return sum;
  }
  double layers() const { return static_cast<double>(cases_.size()); }

 private:
  struct Case {
    LayerPlan plan;
    balance::Resplitter resplitter;
    Load load;
  };

  std::vector<Case> cases_;
  double total_variation_ = 0;
  std::unique_ptr<balance::Repairer> repairer_;
  LayerPlan repaired_;
};

class Table {
 public:
  explicit Table(std::vector<Window> windows)
      : windows_(std::move(windows)), loads_(layers_of(windows_)) {}

  void add_all() {
    add_yardstick();
    add_plan("plan, equal split", {.tolerance = 1e-3}, 0.1, 0.25);
    add_plan("plan, equal split, finer", {.tolerance = 2.5e-4}, 0.03, 1.0);
    add_plan("plan, equal split, as good as EPLB", {.tolerance = 8.5e-3}, 0.71, 0.15);
    add_instruction_sets();
    add_weighted();
    add_resplit();
    add_next_window();
    add_repair();
    add_no_spare_slot();
    add_two_slots_per_rank();
    add_other_shapes();
  }

  void print(int rounds) const {
    std::vector<std::function<void()>> runs;
    for (const Row& row : rows_) runs.push_back(row.run);
    const std::vector<double> seconds = interleaved_medians(runs, rounds);
    print_line({.what = "what", .goal = "goal", .measured = "measured", .limit = "bound/limit"},
               "58 layers", "x heap", "met");
    const double heap = 1e3 * seconds[0] / rows_[0].models;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const double ms = 1e3 * seconds[i] / rows_[i].models;
      print_line(rows_[i], fmt::format("{:.3f} ms", ms), fmt::format("{:.2f}", ms / heap),
                 met(rows_[i], ms, heap));
    }
  }

 private:
  static void print_line(const Row& row, const std::string& time, const std::string& ratio,
                         const std::string& met) {
    fmt::print("{:<46}{:<26}{:<26}{:<22}{:>11}{:>8}  {}\n", row.what, row.goal, row.measured,
               row.limit, time, ratio, met);
  }

  // Time goals were set where the yardstick takes kYardstickMs.
  static std::string met(const Row& row, double ms, double heap_ms) {
    if (row.goal.empty()) return "";
    if (!row.good) return "no";
    if (row.goal_ms == 0 || ms <= row.goal_ms) return "yes";
    return ms / heap_ms <= row.goal_ms / kYardstickMs ? "yes, by ratio" : "too slow";
  }

  // Keeps `object` alive for the runs.
  template <typename T>
  static std::function<void()> running(const std::shared_ptr<T>& object, void (T::*run)()) {
    return [object, run] { (object.get()->*run)(); };
  }

  void add_yardstick() {
    const auto plan = [](const Load& load) {
      return *balance::plan_layer_trt(load, kShape.ep_size, kShape.num_slots);
    };
    const double imbalance = mean_of(loads_, [&](const Load& load) {
      const balance::Placement placement = plan(load);
      return percent({placement, balance::equal_shares(placement)}, load);
    });
    rows_.push_back({.what = "the yardstick: TensorRT-LLM's planner, heaps",
                     .goal = "",
                     .measured = fmt::format("{:.3f} %", imbalance),
                     .limit = fmt::format("{:.3f} %", mean_bound(loads_, kShape, Split::kEqual)),
                     .run =
                         [this, plan] {
                           for (const Load& load : loads_) plan(load);
                         },
                     .models = static_cast<double>(loads_.size()) / kLayers});
  }

  void add_plan(const std::string& what, const balance::PlannerOptions& options, double goal,
                double goal_ms) {
    const auto planning = std::make_shared<Planning>(loads_, kShape, options);
    const double imbalance = planning->mean_imbalance();
    rows_.push_back({.what = what,
                     .goal = fmt::format("<= {} %, {} ms", goal, goal_ms),
                     .measured = fmt::format("{:.3f} %", imbalance),
                     .limit = fmt::format("{:.3f} %", planning->bound()),
                     .good = imbalance <= goal,
                     .goal_ms = goal_ms,
                     .run = running(planning, &Planning::run),
                     .models = planning->models()});
  }

  // The first row again with each instruction set of this processor.
  void add_instruction_sets() {
    for (const balance::search::Search* table : balance::search::all_searches()) {
      if (!table->supported()) continue;
      const std::string isa(table->isa);
      setenv("WIDEEP_ISA", isa.c_str(), 1);
      add_plan("  with " + (isa == "ref" ? "no vector instructions" : isa), {.tolerance = 1e-3},
               0.1, 0.75);
    }
    unsetenv("WIDEEP_ISA");
  }

  void add_weighted() {
    std::vector<Load> loads = extreme_loads(kShape.num_experts);
    const size_t extremes = loads.size();
    loads.insert(loads.end(), loads_.begin(), loads_.end());
    const auto planning = std::make_shared<Planning>(
        loads, kShape, balance::PlannerOptions{.split = Split::kWeighted});
    const std::vector<double> found = planning->imbalances();
    const double worst = *std::max_element(found.begin(), found.end()) / 100;
    rows_.push_back({.what = "plan, weighted split",
                     .goal = "every load <= 1e-6",
                     .measured = fmt::format("worst {:.1e}", worst),
                     .limit = fmt::format("0; {} extremes too", extremes),
                     .good = worst <= 1e-6,
                     .run = running(planning, &Planning::run),
                     .models = planning->models()});
  }

  std::vector<Drift> drifts_of(double percent) const {
    return drifts_between(windows_, 0.93 * percent, 1.04 * percent);
  }
  std::vector<Drift> half_drifts_of(double percent) const {
    std::vector<Drift> halves;
    for (const Drift& drift : drifts_of(percent)) halves.push_back(halfway(drift));
    return halves;
  }

  void add_resplit() {
    // One model, as an engine has it.
    const auto drifted =
        std::make_shared<Drifted>(std::vector<Drift>{drifts_of(6).at(0)}, Split::kEqual);
    rows_.push_back({.what = "re-split, each layer",
                     .goal = "<= 2 us a layer",
                     .measured = fmt::format("drift {:.1f} %", drifted->drift()),
                     .limit = "",
                     .goal_ms = 2e-3 * kLayers,
                     .run = running(drifted, &Drifted::resplit),
                     .models = drifted->models()});
  }

  void add_next_window() {
    add_next_window(half_drifts_of(6), 0.05);
    add_next_window(drifts_of(6), 0.7);
  }
  void add_next_window(const std::vector<Drift>& drifts, double goal) {
    const auto drifted = std::make_shared<Drifted>(drifts, Split::kEqual);
    const double imbalance = drifted->resplit_imbalance();
    rows_.push_back(
        {.what = fmt::format("next window, drift {:.1f} %, new shares", drifted->drift()),
         .goal = fmt::format("<= {} %, no move", goal),
         .measured = fmt::format("{:.3f} %", imbalance),
         .limit = fmt::format("{:.3f} %", drifted->bound(Split::kWeighted)),
         .good = imbalance <= goal,
         .run = running(drifted, &Drifted::resplit),
         .models = drifted->models()});
  }

  void add_repair() {
    add_repair(6, Split::kWeighted, 0.3, 5.0);
    add_repair(17, Split::kWeighted, 3.0, 5.0);
    add_repair(6, Split::kEqual, 30, 0.4);
  }
  void add_repair(double drift, Split split, double goal, double goal_ms) {
    const auto drifted = std::make_shared<Drifted>(drifts_of(drift), split);
    const balance::RepairReport report = drifted->mean_report();
    const double moves = report.moves / drifted->layers();
    const char* how = split == Split::kEqual ? "equal split" : "shares";
    rows_.push_back(
        {.what = fmt::format("repair, {}, drift {:.1f} %", how, drifted->drift()),
         .goal = fmt::format("<= 1 %, {:g} moves, {:g} ms", goal, goal_ms),
         .measured = fmt::format("{:.2f} %, {:.2f} moves", report.imbalance_after, moves),
         .limit = fmt::format("{:.3f} %", drifted->bound(split)),
         .good = report.imbalance_after <= 1 && moves <= goal,
         .goal_ms = goal_ms,
         .run = running(drifted, &Drifted::repair),
         .models = drifted->models()});
  }

  void add_no_spare_slot() {
    PlanShape shape = kShape;
    shape.num_slots = shape.num_experts;
    const auto planning = std::make_shared<Planning>(loads_, shape, balance::PlannerOptions{});
    const double imbalance = planning->mean_imbalance(), bound = planning->bound();
    rows_.push_back({.what = "plan, S = E = 256",
                     .goal = "bound + 0.5 points",
                     .measured = fmt::format("{:.2f} %", imbalance),
                     .limit = fmt::format("{:.2f} %", bound),
                     .good = imbalance <= bound + 0.5,
                     .run = running(planning, &Planning::run),
                     .models = planning->models()});
  }

  void add_two_slots_per_rank() {
    PlanShape shape = kShape;
    shape.ep_size = 144;
    const auto planning =
        std::make_shared<Planning>(windows_[0].layers, shape, balance::PlannerOptions{});
    const double imbalance = planning->mean_imbalance();
    rows_.push_back({.what = "plan, R = 144, two slots, " + windows_[0].name,
                     .goal = "<= 14.1 %, 50 ms",
                     .measured = fmt::format("{:.2f} %", imbalance),
                     .limit = fmt::format("{:.2f} %", planning->bound()),
                     .good = imbalance <= 14.1,
                     .goal_ms = 50,
                     .run = running(planning, &Planning::run),
                     .models = planning->models()});
  }

  // Without a goal.
  void add_other_shapes() {
    for (const auto& [ranks, slots] : {std::pair{32, 320}, {36, 288}, {64, 320}}) {
      PlanShape shape = kShape;
      shape.ep_size = ranks;
      shape.num_slots = slots;
      const auto planning = std::make_shared<Planning>(loads_, shape, balance::PlannerOptions{});
      rows_.push_back({.what = fmt::format("plan, R = {}, S = {}", ranks, slots),
                       .goal = "",
                       .measured = fmt::format("{:.3f} %", planning->mean_imbalance()),
                       .limit = fmt::format("{:.3f} %", planning->bound()),
                       .run = running(planning, &Planning::run),
                       .models = planning->models()});
    }
  }

  std::vector<Window> windows_;
  std::vector<Load> loads_;
  std::vector<Row> rows_;
};

int run(int rounds) {
  std::vector<Window> windows = deepseek_windows();
  if (windows.empty()) {
    std::puts("WIDEEP_DATA_DIR has no expert_load_deepseek_v3: using synthetic loads");
    windows = lognormal_windows();
  }
  Table table(std::move(windows));
  table.add_all();
  table.print(rounds);
  return 0;
}

}  // namespace
}  // namespace wideep::measure

int main(int argc, char** argv) {
  wideep::command_line::Program program("Measures wideep's balancer against its goals");
  int rounds = 9;
  program.add_option("--rounds", rounds, "Number of rounds; times are medians over them")
      .positive();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  return wideep::measure::run(rounds);
}
