// SPDX-License-Identifier: Apache-2.0
//
// Every method is the same pipeline with other parts: a load made from windows, a planner, then
// perhaps swaps or other counts, then perhaps shares for all windows. The judge runs the pipeline
// on folds of the windows, blocks of neighbours in time: a window beside one that was planned from
// is too easy to foresee. A plan made to judge needs only the same effort as its rivals, so
// searches are shorter there and 16 layers stand for all.
#include "plan/robust.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include "base/try.h"
#include "plan/window_counts.h"
#include "plan/window_shares.h"
#include "plan/window_swaps.h"

namespace wideep::balance {
namespace {

using Kind = RobustMethod::Kind;

constexpr int kMaxBlocks = 8;
constexpr size_t kMaxJudgedLayers = 16;
// A choice needs no plan that is as good as possible, only the same effort for all blocks.
constexpr int kTriesToJudge = 200, kMinTriesToJudge = 5000;  // per slot, and in all
constexpr double kMaxZ = 100.0;

const std::vector<RobustMethod>& all_methods() {
  static const std::vector<RobustMethod> methods = {
      {Kind::kSum},    {Kind::kPlain},   {Kind::kMean},  {Kind::kStd, 1.0},
      {Kind::kRecent}, {Kind::kWindows}, {Kind::kCounts}};
  return methods;
}

// Those that differ.
std::vector<RobustMethod> methods_for(Split split) {
  std::vector<RobustMethod> methods = all_methods();
  if (split == Split::kEqual) std::erase(methods, RobustMethod{Kind::kPlain});
  return methods;
}

std::vector<double> weighted_sum(std::span<const std::vector<double>> windows,
                                 const std::function<double(size_t)>& weight) {
  std::vector<double> sum(windows[0].size(), 0.0);
  for (size_t w = 0; w < windows.size(); ++w) {
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += weight(w) * windows[w][e];
  }
  return sum;
}

void add_deviations(const Windows& parts, double z, std::vector<double>* mean) {
  for (size_t e = 0; e < mean->size(); ++e) {
    double squares = 0.0;
    for (const auto& window : parts) squares += (window[e] - (*mean)[e]) * (window[e] - (*mean)[e]);
    (*mean)[e] += z * std::sqrt(squares / static_cast<double>(parts.size()));
  }
}

// Methods whose plan is for equal split, whatever the split: one that weighted shares make perfect
// for a single load may have odd replica counts, and with few spare slots it is no better for other
// loads than any plan.
bool plans_for_equal_split(const RobustMethod& method) {
  return method.kind == Kind::kPlain || method.kind == Kind::kWindows ||
         method.kind == Kind::kCounts;
}

// Plans layers by one method.
class MethodPlanner {
 public:
  // equal_planner: for methods that go on from the plan for equal split whatever the split.
  MethodPlanner(LayerPlanner& planner, LayerPlanner& equal_planner, const PlanShape& shape,
                const PlannerOptions& options, const RobustMethod& method,
                const CountSearchOptions& count_search)
      : planner_(plans_for_equal_split(method) ? equal_planner : planner),
        shape_(shape),
        split_(options.split),
        method_(method),
        count_search_(count_search) {}

  Split split() const { return split_; }

  void plan(std::span<const std::vector<double>> windows, LayerPlan* plan) {
    planner_.plan(expected_load(windows, method_), plan);
    if (method_.kind == Kind::kWindows) swap_for_windows(windows, shape_, plan);
    if (method_.kind == Kind::kCounts) {
      search_counts_for_windows(windows, shape_, count_search_, plan);
    }
    if (plans_for_equal_split(method_) && split_ == Split::kWeighted) {
      plan->shares = shares_for_windows(windows, plan->placement);
    }
  }

 private:
  LayerPlanner& planner_;
  PlanShape shape_;
  Split split_;
  RobustMethod method_;
  CountSearchOptions count_search_;
};

// Evaluates windows [begin, end) with plans from all others: a plan never sees the windows that it
// is evaluated on.
struct Fold {
  size_t begin, end;
};

// Blocks of nearly equal length. Neighbours in time are alike, so they are left out together.
std::vector<Fold> folds_of(int num_windows) {
  const int blocks = std::min(kMaxBlocks, num_windows);
  std::vector<Fold> folds;
  for (int block = 0; block < blocks; ++block) {
    folds.push_back({static_cast<size_t>(block * num_windows / blocks),
                     static_cast<size_t>((block + 1) * num_windows / blocks)});
  }
  return folds;
}

Windows windows_outside(const Windows& windows, const Fold& fold) {
  Windows outside = windows;
  outside.erase(outside.begin() + static_cast<std::ptrdiff_t>(fold.begin),
                outside.begin() + static_cast<std::ptrdiff_t>(fold.end));
  return outside;
}

// Evenly spaced.
std::vector<size_t> judged_layers(size_t num_layers) {
  const size_t count = std::min(num_layers, kMaxJudgedLayers);
  std::vector<size_t> layers;
  for (size_t i = 0; i < count; ++i) layers.push_back(i * num_layers / count);
  return layers;
}

// sums: [window] imbalance ratios, summed over num_layers layers.
WindowFigures figures_of(std::span<const double> sums, size_t num_layers) {
  WindowFigures figures;
  const auto count = static_cast<double>(sums.size()), layers = static_cast<double>(num_layers);
  for (const double sum : sums) {
    figures.mean += sum / layers / count;
    figures.worst = std::max(figures.worst, sum / layers);
  }
  double squares = 0.0;
  for (const double sum : sums) squares += std::pow(sum / layers - figures.mean, 2);
  figures.std = std::sqrt(squares / count);
  return figures;
}

// As it is served. Engines that split by shares compute them for each window. A plan for equal
// split is served both ways: other engines keep to equal shares, and wideep's own computes shares
// for each iteration by default, so both count half.
double served_imbalance(const LayerPlan& plan, Split split, std::span<const double> window) {
  const double resplit_imbalance =
      imbalance_ratio(plan.placement, window, resplit(plan.placement, window));
  if (split == Split::kWeighted) return resplit_imbalance;
  return 0.5 * (resplit_imbalance + imbalance_ratio(plan.placement, window, plan.shares));
}

WindowFigures evaluate(const WindowedLoad& load, MethodPlanner& planner,
                       const std::function<void()>& layer_done) {
  const std::vector<Fold> folds = folds_of(load.num_windows());
  const std::vector<size_t> layers = judged_layers(load.load.size());
  std::vector<double> sums(static_cast<size_t>(load.num_windows()), 0.0);
  LayerPlan plan;
  for (const size_t layer : layers) {
    const Windows& windows = load.load[layer];
    for (const Fold& fold : folds) {
      planner.plan(windows_outside(windows, fold), &plan);
      for (size_t w = fold.begin; w < fold.end; ++w) {
        sums[w] += served_imbalance(plan, planner.split(), windows[w]);
      }
      layer_done();
    }
  }
  return figures_of(sums, layers.size());
}

double value_of(const WindowFigures& figures, RobustObjective objective) {
  return objective == RobustObjective::kMean ? figures.mean : figures.worst;
}

// A method that gains almost nothing over the sum makes the plan less even for the sum itself, so
// the sum is preferred.
RobustMethod best_method(const std::vector<MethodScore>& scores, RobustObjective objective,
                         double tolerance) {
  constexpr double kMinGain = 0.02;
  const auto value = [&](const MethodScore& score) { return value_of(score.left_out, objective); };
  const auto best =
      std::min_element(scores.begin(), scores.end(),
                       [&](const auto& a, const auto& b) { return value(a) < value(b); });
  // scores[0] is kSum: all_methods() begins with it.
  const double min = value(*best), sum = value(scores[0]);
  const bool pays = min < (1.0 - kMinGain) * sum && min < sum - tolerance;
  return pays ? best->method : scores[0].method;
}

PlannedModel plan_all_layers(const WindowedLoad& load, const PlanShape& shape,
                             MethodPlanner& planner, const std::function<void()>& layer_done) {
  PlannedModel model;
  model.placement.num_slots = shape.num_slots;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    LayerPlan plan;
    planner.plan(load.load[i], &plan);
    model.placement.layers[load.layers[i]] = std::move(plan.placement);
    model.shares[load.layers[i]] = std::move(plan.shares);
    layer_done();
  }
  return model;
}

bool has_choice(const WindowedLoad& load, const RobustOptions& robust) {
  return !robust.method && load.num_windows() > 1;
}

}  // namespace

std::string name_of(const RobustMethod& method) {
  switch (method.kind) {
    case Kind::kSum:
      return "sum";
    case Kind::kPlain:
      return "plain";
    case Kind::kMean:
      return "mean";
    case Kind::kStd:
      return fmt::format("std:{}", method.z);
    case Kind::kRecent:
      return "recent";
    case Kind::kWindows:
      return "windows";
    case Kind::kCounts:
      break;
  }
  return "counts";
}

Result<RobustMethod> parse_robust_method(std::string_view name) {
  for (const RobustMethod& method : all_methods()) {
    if (name == name_of(method)) return method;
  }
  constexpr std::string_view kStd = "std:";
  if (name.starts_with(kStd)) {
    double z = -1.0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kStd.size(), end, z);
    if (error == std::errc() && stop == end && z >= 0.0 && z <= kMaxZ) {
      return RobustMethod{Kind::kStd, z};
    }
  }
  return invalid_input(
      fmt::format("expected auto, sum, plain, mean, std:Z with Z from 0 to {}, recent, windows or "
                  "counts, found \"{}\"",
                  kMaxZ, name));
}

std::vector<double> expected_load(std::span<const std::vector<double>> windows,
                                  const RobustMethod& method) {
  const auto one = [](size_t) { return 1.0; };
  if (method.kind == Kind::kSum || method.kind == Kind::kPlain) return weighted_sum(windows, one);
  // All others give windows weights of their own: a window's number of tokens must not
  // matter.
  const Windows parts = parts_of_windows(windows);
  const auto count = static_cast<double>(windows.size());
  // Half-life of a quarter of all windows; the newest window has weight 1.
  if (method.kind == Kind::kRecent) {
    return weighted_sum(parts, [count](size_t w) {
      return std::exp2(4.0 * (static_cast<double>(w) + 1.0 - count) / count);
    });
  }
  std::vector<double> load = weighted_sum(parts, [count](size_t) { return 1.0 / count; });
  if (method.kind == Kind::kStd) add_deviations(parts, method.z, &load);
  return load;
}

int num_layer_plans(const WindowedLoad& load, Split split, const RobustOptions& robust) {
  const size_t evaluated = has_choice(load, robust)
                               ? methods_for(split).size() * folds_of(load.num_windows()).size() *
                                     judged_layers(load.layers.size()).size()
                               : 0;
  return static_cast<int>(evaluated + load.layers.size());
}

Result<RobustPlan> plan_robust(const WindowedLoad& load, const PlanShape& shape,
                               const PlannerOptions& options, const RobustOptions& robust) {
  RobustPlan result;
  result.method = robust.method.value_or(RobustMethod{});
  if (load.num_windows() < 2 && result.method.kind != Kind::kSum) {
    return invalid_input(fmt::format(
        "{}: expected at least 2 windows of load, found {}; give statistics of more iterations, "
        "shorter windows, or plan on their sum",
        name_of(result.method), load.num_windows()));
  }
  WIDEEP_TRY_ASSIGN(const auto planner, make_planner("wideep", shape, options));
  PlannerOptions equal_options = options;
  equal_options.split = Split::kEqual;
  WIDEEP_TRY_ASSIGN(const auto equal_planner, make_planner("wideep", shape, equal_options));
  if (has_choice(load, robust)) {
    for (const RobustMethod& method : methods_for(options.split)) {
      MethodPlanner method_planner(*planner, *equal_planner, shape, options, method,
                                   {.tries_per_slot = kTriesToJudge,
                                    .min_tries = kMinTriesToJudge,
                                    .tolerance = options.tolerance});
      result.scores.push_back({method, evaluate(load, method_planner, robust.layer_done)});
    }
    result.method = best_method(result.scores, robust.objective, options.tolerance);
  }
  MethodPlanner method_planner(*planner, *equal_planner, shape, options, result.method,
                               {.tolerance = options.tolerance});
  result.model = plan_all_layers(load, shape, method_planner, robust.layer_done);
  return result;
}

WindowFigures figures_in_windows(const WindowedLoad& load, const PlannedModel& plan,
                                 bool with_resplit, int num_live_ranks) {
  std::vector<double> sums(static_cast<size_t>(load.num_windows()), 0.0);
  for (size_t i = 0; i < load.layers.size(); ++i) {
    const Placement& placement = plan.placement.layers.at(load.layers[i]);
    const Shares& own = plan.shares.at(load.layers[i]);
    for (size_t w = 0; w < sums.size(); ++w) {
      const std::vector<double>& window = load.load[i][w];
      sums[w] += imbalance_ratio(placement, window, with_resplit ? resplit(placement, window) : own,
                                 num_live_ranks);
    }
  }
  return figures_of(sums, load.load.size());
}

}  // namespace wideep::balance
