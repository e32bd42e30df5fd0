// SPDX-License-Identifier: Apache-2.0
//
// Policies wideep and trt, and the checks of their options.
//
// wideep looks at all layers first, which is cheap: the imbalance of the newest sample after a
// re-split, and whether noise explains it. Then it searches moves for one layer after the other,
// the most urgent first, until the turn's work is used up. Waiting adds to the urgency, so no
// layer waits forever. Where single moves leave much, a plan from scratch competes with them at
// the same price per move: greedy moves end in local optima after a large change.
//
// trt plans every layer from scratch on its turn, from the decayed load, and moves whatever that
// takes.
#include "online/update_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/trace.h"
#include "base/try.h"
#include "online/evidence.h"
#include "online/move_search.h"
#include "online/placement_judge.h"
#include "online/policy_base.h"
#include "online/sample_set.h"
#include "placement/resplit_work.h"
#include "plan/moves.h"
#include "plan/placement_components.h"
#include "plan/window_swaps.h"
#include "plan/windowed_load.h"

namespace wideep::online {
namespace {

using balance::kUnusedSlot;
using balance::LayerPlan;
using balance::Placement;

Sharing sharing_of(ShareUpdate update) {
  return update == ShareUpdate::kIteration ? Sharing::kEachSample : Sharing::kExpectedLoad;
}

class WideepPolicy : public PolicyBase {
 public:
  WideepPolicy(const PolicyShape& shape, const PolicyOptions& options,
               std::unique_ptr<balance::LayerPlanner> planner)
      : PolicyBase(shape, options),
        num_ranks_(shape.plan.num_live_ranks()),
        samples_(shape.plan.num_experts, options.window.num_samples),
        plain_(shape.plan.num_experts, options.window.num_samples),
        judge_(sharing_of(options.share_update), shape.plan.num_experts, shape.plan.ep_size),
        search_(shape.plan, &judge_),
        planner_(std::move(planner)),
        evidence_(options.false_alarm_rate, shape.plan, shape.num_layers),
        layers_(static_cast<size_t>(shape.num_layers)),
        turn_ms_(options.turn_ms > 0.0 ? options.turn_ms : default_turn_ms(shape.plan)) {
    const double rows_per_rank =
        static_cast<double>(options.horizon_tokens) * shape.top_k / num_ranks_;
    goal_ = {.tolerance = options.tolerance,
             // rows_per_move in units of imbalance: rows_per_rank rows are an imbalance of 1.
             .price = options.rows_per_move / rows_per_rank,
             .max_moves = options.max_moves};
    price_ = goal_.price;
  }

  std::span<const double> expected_load(int layer_idx) override {
    if (window_.num_samples() == 0) return window_.decayed(layer_idx);
    plain_.assign(window_, layer_idx, num_ranks_, 0.0, window_.open_is_new_text());
    return plain_.expected();
  }

 protected:
  void choose_layers(std::span<const Placement> placements,
                     std::span<const uint8_t> busy) override {
    bool any_evidence = false;
    for (int l = 0; l < shape_.num_layers; ++l) {
      if (is_busy(busy, l)) continue;
      look(l, placements[static_cast<size_t>(l)]);
      const Layer& layer = layers_[static_cast<size_t>(l)];
      if (layer.from_open || layer.due) order_.push_back(l);
      any_evidence = any_evidence || layer.from_open || (layer.due && layer.significant);
    }
    std::sort(order_.begin(), order_.end(), [this](int a, int b) {
      const double of_a = layers_[static_cast<size_t>(a)].urgency;
      const double of_b = layers_[static_cast<size_t>(b)].urgency;
      return of_a != of_b ? of_a > of_b : a < b;
    });
    const double max = 1e6 * turn_ms_;
    end_of_turn_ = work() + (any_evidence ? kEvidenceTurns * max : max);
  }

  bool has_time() const override { return work() < end_of_turn_; }

  bool plan_layer(const Placement& from, LayerUpdate* update) override {
    Layer& layer = layers_[static_cast<size_t>(update->layer_idx)];
    const bool with_open = layer.from_open;
    assign(&samples_, update->layer_idx, options_.drift_margin, with_open);
    layer.samples_seen = window_.samples_completed();
    layer.open_seen = window_.open_tokens();
    layer.waited = 0;
    if (samples_.size() == 0) return false;
    LayerPlan& plan = update->plan;
    plan.placement = from;
    goal_.max_work = end_of_turn_ - work();
    goal_.price = with_open ? kPriceOfOpen * price_ : price_;
    const double left = search_.run(samples_, goal_, &plan.placement);
    if (left > kPlanAnewAbove && !with_open && !search_.cut_short() && has_time_for(anew_work())) {
      plan_anew(from, left, &plan.placement);
    }
    plan.placement = balance::align_slots(from, std::move(plan.placement));
    const bool moves = plan.placement != from;
    update->urgent = layer.from_open || layer.significant;
    // A layer that was left unchanged would be left unchanged again without a new sample. With
    // moves it is examined again on its next turn, from the new placement.
    layer.unchanged_at = moves ? -1 : window_.samples_completed();
    layer.calm = moves ? 0.0 : layer.imbalance;
    if (!moves && options_.share_update == ShareUpdate::kIteration) return false;
    // The margin is for the search only; the report and the shares use the load as it was.
    assign(&plain_, update->layer_idx, 0.0, with_open);
    constexpr double kAll = std::numeric_limits<double>::infinity();
    update->imbalance_before = judge_.imbalance(plain_, from, kAll);
    update->imbalance_after = judge_.imbalance(plain_, plan.placement, kAll);
    judge_.choose_shares(plain_.expected(), &plan);
    return true;
  }

 private:
  // What is known of a layer without a search.
  struct Layer {
    // Of this turn:
    bool due = false;        // it is its turn, and there is a new sample
    bool from_open = false;  // there is evidence in the open sample, or the text has changed
    double imbalance = 0.0;  // of the newest sample, or of the open one
    bool significant = false;
    double urgency = 0.0;
    // Of the last search:
    int64_t unchanged_at = -1;  // samples completed when it found no moves
    int64_t samples_seen = -1;  // samples completed, and tokens of the open one
    double open_seen = 0.0;
    double calm = 0.0;  // the imbalance that it found no moves against
    int waited = 0;     // turns in which the layer was due since then
  };

  // Of the turn's time, in a turn with evidence.
  static constexpr double kEvidenceTurns = 4.0;
  // Added to the urgency for each turn of waiting, so that no layer waits forever.
  static constexpr double kUrgencyOfWaiting = 0.002;

  void look(int layer_idx, const Placement& placement) {
    Layer& layer = layers_[static_cast<size_t>(layer_idx)];
    const int64_t steps_before = balance::resplit_steps();
    layer.from_open = layer.due = false;
    const double tokens = window_.open_tokens();
    const bool looked_at = layer.samples_seen == window_.samples_completed() &&
                           tokens >= layer.open_seen && tokens < kGrown * layer.open_seen;
    if (tokens > 0.0 && !looked_at && options_.false_alarm_rate > 0.0) {
      const auto found = evidence_.look(layer_idx, placement, window_.open(layer_idx));
      layer.imbalance = found.imbalance;
      layer.significant = found.significant;
      const bool new_text =
          window_.open_is_new_text() &&
          tokens >= kFirstLook * static_cast<double>(options_.window.sample_tokens);
      layer.from_open = found.significant || (new_text && found.imbalance > options_.tolerance);
    }
    if (!layer.from_open && rota_.has_turn(layer_idx) && window_.num_samples() > 0 &&
        layer.unchanged_at != window_.samples_completed()) {
      layer.due = true;
      ++layer.waited;
      const auto found = evidence_.look(layer_idx, placement, window_.sample(layer_idx, 0));
      layer.imbalance = found.imbalance;
      layer.significant = found.significant;
    }
    layer.urgency = layer.imbalance - layer.calm + kUrgencyOfWaiting * layer.waited;
    if (layer.from_open) layer.urgency += 1.0;
    look_work_ += kLookWork * shape_.plan.num_slots +
                  kStepWork * static_cast<double>(balance::resplit_steps() - steps_before);
  }

  void assign(SampleSet* samples, int layer_idx, double margin, bool with_open) {
    samples->assign(window_, layer_idx, num_ranks_, margin, with_open);
    look_work_ += kAssignWork * (window_.num_samples() + 1) * shape_.plan.num_experts;
  }

  // Estimates of nanoseconds, as MoveSearch::work(): per slot of a look, per sample and expert of a
  // set, and per slot of a plan, of which so much more for each sample that it is to balance.
  static constexpr double kLookWork = 3.0;
  static constexpr double kAssignWork = 7.0;
  static constexpr double kPlanWork = 1500.0;
  static constexpr double kPlanWorkOfSample = 100.0;
  double work() const { return search_.work() + look_work_; }
  bool has_time_for(double more) const { return work() + more <= end_of_turn_; }
  double anew_work() const {
    return (kPlanWork + kPlanWorkOfSample * samples_.size()) * shape_.plan.num_slots;
  }

  // If single moves leave more than this in complete samples, a plan from scratch is compared with
  // them: greedy moves may end in a local optimum after a large change of load.
  static constexpr double kPlanAnewAbove = 0.05;

  double cost(const Placement& from, const Placement& to, double imbalance) const {
    return imbalance + goal_.price * balance::count_moves(from, to);
  }

  void plan_anew(const Placement& from, double imbalance, Placement* placement) {
    look_work_ += anew_work();
    planner_->plan(samples_.expected(), &anew_);
    windows_.clear();
    for (int i = 0; i < samples_.size(); ++i) {
      const std::span<const double> load = samples_.load(i);
      windows_.emplace_back(load.begin(), load.end());
    }
    balance::swap_for_windows(windows_, shape_.plan, &anew_);
    balance::align_slots(from, &anew_);
    if (balance::count_moves(from, anew_.placement) > goal_.max_moves) return;
    // Both plans pay for their moves.
    const double enough = cost(from, *placement, imbalance);
    const double found = judge_.imbalance(samples_, anew_.placement, enough);
    if (cost(from, anew_.placement, found) < enough) *placement = anew_.placement;
  }

  int num_ranks_;
  SearchGoal goal_;
  SampleSet samples_;  // with the margin: what is searched on
  SampleSet plain_;    // without it: what is reported
  PlacementJudge judge_;
  MoveSearch search_;
  std::unique_ptr<balance::LayerPlanner> planner_;
  LayerPlan anew_;
  balance::Windows windows_;
  Evidence evidence_;
  std::vector<Layer> layers_;
  double turn_ms_;
  double price_ = 0.0;
  double look_work_ = 0.0;
  double end_of_turn_ = 0.0;
};

class TrtPolicy : public PolicyBase {
 public:
  TrtPolicy(const PolicyShape& shape, const PolicyOptions& options,
            std::unique_ptr<balance::LayerPlanner> planner)
      : PolicyBase(shape, options), planner_(std::move(planner)) {}

  std::span<const double> expected_load(int layer_idx) override {
    return window_.decayed(layer_idx);
  }

 protected:
  void choose_layers(std::span<const Placement> /*placements*/,
                     std::span<const uint8_t> busy) override {
    for (int l = rota_.first_layer(); l < shape_.num_layers; l += rota_.stride()) {
      if (!is_busy(busy, l)) order_.push_back(l);
    }
  }

  bool plan_layer(const Placement& from, LayerUpdate* update) override {
    const std::span<const double> load = window_.decayed(update->layer_idx);
    if (std::accumulate(load.begin(), load.end(), 0.0) == 0.0) return false;
    LayerPlan& plan = update->plan;
    planner_->plan(load, &plan);
    balance::align_slots(from, &plan);
    update->imbalance_before = balance::imbalance_ratio(from, load, balance::equal_shares(from));
    update->imbalance_after = balance::imbalance_ratio(plan.placement, load, plan.shares);
    // As TensorRT-LLM: each plan is made from the load since the last one.
    window_.forget_decayed(update->layer_idx);
    return plan.placement != from;
  }

 private:
  std::unique_ptr<balance::LayerPlanner> planner_;
};

template <typename T>
Status check_at_least(const char* option, T found, T min) {
  if (found >= min) return {};
  return invalid_input(fmt::format("{}: expected at least {}, found {}", option, min, found));
}

Status check_window(const WindowOptions& options) {
  WIDEEP_TRY(check_at_least<int64_t>("sample_tokens", options.sample_tokens, 1));
  WIDEEP_TRY(check_at_least("num_samples", options.num_samples, 1));
  if (options.decay >= 0.0 && options.decay <= 1.0) return {};
  return invalid_input(fmt::format("decay: expected 0 to 1, found {}", options.decay));
}

Status check_options(const PolicyShape& shape, const PolicyOptions& options) {
  WIDEEP_TRY(check_at_least("num_layers", shape.num_layers, 1));
  WIDEEP_TRY(check_at_least("top_k", shape.top_k, 1));
  if (options.layer_updates_per_iter < 1 || options.layer_updates_per_iter > shape.num_layers) {
    return invalid_input(
        fmt::format("layer_updates_per_iter: expected 1 to {} (the MoE layers), found {}",
                    shape.num_layers, options.layer_updates_per_iter));
  }
  WIDEEP_TRY(check_at_least<int64_t>("warm_up_iterations", options.warm_up_iterations, 0));
  WIDEEP_TRY(check_at_least("max_moves", options.max_moves, 1));
  WIDEEP_TRY(check_at_least<int64_t>("horizon_tokens", options.horizon_tokens, 1));
  WIDEEP_TRY(check_at_least("tolerance", options.tolerance, 0.0));
  WIDEEP_TRY(check_at_least("rows_per_move", options.rows_per_move, 0.0));
  if (options.false_alarm_rate < 0.0 || options.false_alarm_rate >= 1.0) {
    return invalid_input(fmt::format("false_alarm_rate: expected 0 to less than 1, found {}",
                                     options.false_alarm_rate));
  }
  WIDEEP_TRY(check_at_least("turn_ms", options.turn_ms, 0.0));
  WIDEEP_TRY(check_at_least("drift_margin", options.drift_margin, 0.0));
  return check_window(options.window);
}

using Planner = std::unique_ptr<balance::LayerPlanner>;

template <typename Policy>
std::unique_ptr<UpdatePolicy> make(const PolicyShape& shape, const PolicyOptions& options,
                                   Planner planner) {
  return std::make_unique<Policy>(shape, options, std::move(planner));
}

struct PolicyEntry {
  PolicyKind kind;
  std::string_view name;  // of the policy, and of the planner that it uses
  bool splits_weighted;   // an expert's tokens among its replicas
  std::unique_ptr<UpdatePolicy> (*make)(const PolicyShape& shape, const PolicyOptions& options,
                                        Planner planner);
};

constexpr PolicyEntry kPolicies[] = {
    {PolicyKind::kWideep, "wideep", true, make<WideepPolicy>},
    {PolicyKind::kTrt, "trt", false, make<TrtPolicy>},
};

const PolicyEntry& entry_of(PolicyKind kind) {
  const auto* found = std::ranges::find(kPolicies, kind, &PolicyEntry::kind);
  WIDEEP_CHECK(found != std::end(kPolicies));
  return *found;
}

}  // namespace

std::string_view name_of(PolicyKind kind) { return entry_of(kind).name; }

std::string_view name_of(ShareUpdate update) {
  return update == ShareUpdate::kWindow ? "window" : "iteration";
}

Result<PolicyKind> parse_policy(std::string_view name) {
  std::string names;
  for (const PolicyEntry& each : kPolicies) {
    if (name == each.name) return each.kind;
    names += fmt::format("{}{}", names.empty() ? "" : " or ", each.name);
  }
  return invalid_input(fmt::format("policy: expected {}, found {}", names, name));
}

Result<ShareUpdate> parse_share_update(std::string_view name) {
  for (const ShareUpdate update : {ShareUpdate::kIteration, ShareUpdate::kWindow}) {
    if (name == name_of(update)) return update;
  }
  return invalid_input(fmt::format("share_update: expected iteration or window, found {}", name));
}

int64_t default_horizon_tokens(int ep_size) {
  const int64_t few_ranks = PolicyOptions{}.horizon_tokens;
  return ep_size > 8 ? few_ranks * (ep_size / 4) : few_ranks;
}

double default_turn_ms(const balance::PlanShape& shape) {
  if (shape.num_slots <= kMaxSlotsForThorough) return 8.0;
  return 4.0 * (1.0 + std::max(0, shape.ep_size - 32) / 96.0);
}

double rows_per_move(double bytes_per_expert, double copy_bytes_per_second,
                     double seconds_per_row) {
  return bytes_per_expert / copy_bytes_per_second / seconds_per_row;
}

Result<std::unique_ptr<UpdatePolicy>> make_update_policy(const PolicyShape& shape,
                                                         const PolicyOptions& options) {
  WIDEEP_TRY(balance::check_plan_shape(shape.plan));
  WIDEEP_TRY(check_options(shape, options));
  if (shape.plan.num_nodes > 1 && shape.plan.num_groups > 1) {
    return invalid_input(
        fmt::format("num_groups: moves do not keep {} groups on {} nodes; give num_groups 1",
                    shape.plan.num_groups, shape.plan.num_nodes));
  }
  const PolicyEntry& policy = entry_of(options.policy);
  // With too few spare slots to connect all ranks, a plan for weighted split is made for one load,
  // takes milliseconds, and is no better for the other samples.
  const bool weighted = policy.splits_weighted && !balance::components_are_needed(shape.plan);
  WIDEEP_TRY_ASSIGN(auto planner,
                    balance::make_planner(
                        policy.name, shape.plan,
                        {.split = weighted ? balance::Split::kWeighted : balance::Split::kEqual}));
  return policy.make(shape, options, std::move(planner));
}

}  // namespace wideep::online
