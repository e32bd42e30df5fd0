// SPDX-License-Identifier: Apache-2.0
//
// Each iteration is served in the order of an engine:
//
//   due plans go into service ─▶ modes are judged ─▶ the policy gets the counts ─▶ it plans
//
// Judging comes before the policy sees the counts: otherwise every mode would know the load that
// it is judged on. While a plan is being made by the clock of processor time, counts pile up and
// reach the policy as one sum. An iteration is read and dropped; only a window of them is kept, so
// long traces need no memory.
#include "online/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "base/cpu_time.h"
#include "base/try.h"
#include "online/served_layer.h"
#include "plan/window_swaps.h"
#include "plan/windowed_load.h"

namespace wideep::online {
namespace {

using balance::LayerPlan;
using balance::Placement;
using Load = std::vector<double>;      // [E]
using ModelLoads = std::vector<Load>;  // [layer]

Sharing sharing_of(const PolicyOptions& options) {
  if (options.policy == PolicyKind::kTrt) return Sharing::kEqual;
  return options.share_update == ShareUpdate::kIteration ? Sharing::kEachSample
                                                         : Sharing::kExpectedLoad;
}

balance::Split split_of(const PolicyOptions& options) {
  return options.policy == PolicyKind::kTrt ? balance::Split::kEqual : balance::Split::kWeighted;
}

ModelLoads loads_of(const Iteration& iteration, int num_layers) {
  ModelLoads loads;
  for (int l = 0; l < num_layers; ++l) {
    const auto counts = iteration.counts_of(l);
    loads.emplace_back(counts.begin(), counts.end());
  }
  return loads;
}

// The tokens of the last iterations, summed.
class SlidingWindow {
 public:
  explicit SlidingWindow(size_t iterations) : iterations_(iterations) {}

  void add(const ModelLoads& loads) {
    last_.push_back(loads);
    if (sum_.empty()) sum_.assign(loads.size(), Load(loads[0].size()));
    add_to_sum(loads, 1.0);
    if (last_.size() <= iterations_) return;
    add_to_sum(last_.front(), -1.0);
    last_.pop_front();
  }

  const ModelLoads& sum() const { return sum_; }
  // One layer's, iteration by iteration.
  balance::Windows windows_of(size_t layer) const {
    balance::Windows windows;
    for (const ModelLoads& loads : last_) windows.push_back(loads[layer]);
    return balance::parts_of_windows(windows);
  }

 private:
  void add_to_sum(const ModelLoads& loads, double sign) {
    for (size_t l = 0; l < loads.size(); ++l) {
      for (size_t e = 0; e < loads[l].size(); ++e) sum_[l][e] += sign * loads[l][e];
    }
  }

  size_t iterations_;
  std::deque<ModelLoads> last_;
  ModelLoads sum_;
};

// Rows of the fullest rank and of the mean rank, in units of one rank's mean row.
class RowSums {
 public:
  void add(std::span<ServedLayer> layers, const ModelLoads& loads) {
    for (size_t l = 0; l < layers.size(); ++l) {
      const double rows = std::accumulate(loads[l].begin(), loads[l].end(), 0.0);
      excess_ += rows * layers[l].imbalance(loads[l]);
      rows_ += rows;
    }
  }
  double imbalance() const { return rows_ > 0.0 ? excess_ / rows_ : 0.0; }

 private:
  double excess_ = 0.0;
  double rows_ = 0.0;
};

struct PendingUpdate {
  int64_t in_service = 0;  // from this iteration on
  LayerPlan plan;
};

ReplayFigures& operator+=(ReplayFigures& sum, const ReplayFigures& other) {
  sum.off += other.off;
  sum.planned += other.planned;
  sum.online += other.online;
  sum.perfect += other.perfect;
  sum.past += other.past;
  return sum;
}

ReplayFigures operator/(ReplayFigures sum, double count) {
  for (double* figure : {&sum.off, &sum.planned, &sum.online, &sum.perfect, &sum.past}) {
    *figure /= count;
  }
  return sum;
}

// Rounds halves up and cannot overflow. REQUIRES: tokens ≥ 0, per_iteration ≥ 1.
int64_t rounded_quotient(int64_t tokens, int64_t per_iteration) {
  const bool up = tokens % per_iteration >= per_iteration - per_iteration / 2;
  return tokens / per_iteration + (up ? 1 : 0);
}

class Replayer {
 public:
  Replayer(const NextIteration& next, int num_layers, int top_k, const ReplayOptions& options)
      : options_(options),
        num_layers_(num_layers),
        top_k_(top_k),
        next_(next),
        window_iterations_(std::max<int64_t>(
            1, rounded_quotient(options.window_tokens, options.stream.iteration_tokens))),
        past_(static_cast<size_t>(window_iterations_)),
        pending_(static_cast<size_t>(num_layers_)),
        busy_(static_cast<size_t>(num_layers_)) {}

  Result<ReplayResult> run() {
    WIDEEP_TRY(make());
    WIDEEP_TRY_ASSIGN(const std::vector<Iteration> first, first_window());
    place();
    for (const Iteration& iteration : first) serve(iteration, false);
    do {
      serve(iteration_, true);
    } while (next_(&iteration_));
    return finish();
  }

 private:
  Status make() {
    PolicyOptions policy = options_.policy;
    if (!options_.start_in_order) {
      // The static plan uses the whole first window, so online must not change it before.
      policy.warm_up_iterations = std::max(policy.warm_up_iterations, window_iterations_ - 1);
    }
    const PolicyShape shape{.plan = options_.shape, .num_layers = num_layers_, .top_k = top_k_};
    WIDEEP_TRY_ASSIGN(policy_, make_update_policy(shape, policy));
    const balance::PlannerOptions planner{.split = split_of(policy)};
    WIDEEP_TRY_ASSIGN(planner_, balance::make_planner(options_.planner, options_.shape, planner));
    WIDEEP_TRY_ASSIGN(past_planner_,
                      balance::make_planner(name_of(policy.policy), options_.shape, planner));
    return {};
  }

  // Leaves the iteration after it in iteration_.
  Result<std::vector<Iteration>> first_window() {
    std::vector<Iteration> first;
    while (next_(&iteration_)) {
      if (static_cast<int64_t>(first.size()) == window_iterations_) return first;
      first.push_back(iteration_);
      past_.add(loads_of(iteration_, num_layers_));
    }
    return invalid_input(fmt::format(
        "expected more than one window of {} iterations of {} tokens, found {}", window_iterations_,
        options_.stream.iteration_tokens,
        first.size() == 1 ? "1 iteration" : fmt::format("{} iterations", first.size())));
  }

  // Plans for the mean of the first window's iterations, then swaps to balance each of them.
  LayerPlan plan_static(size_t layer) {
    const balance::Windows windows = past_.windows_of(layer);
    Load mean(windows[0].size());
    for (const Load& window : windows) {
      for (size_t e = 0; e < mean.size(); ++e) mean[e] += window[e];
    }
    LayerPlan plan;
    planner_->plan(mean, &plan);
    if (options_.planner == "wideep") {
      balance::swap_for_windows(windows, options_.shape, &plan);
      if (split_of(options_.policy) == balance::Split::kWeighted) {
        plan.shares = balance::resplit(plan.placement, mean);
      }
    }
    return plan;
  }

  void place() {
    const Sharing sharing = sharing_of(options_.policy);
    const balance::PlanShape& shape = options_.shape;
    LayerPlan in_order;
    in_order.placement =
        balance::default_placement(shape.num_experts, shape.ep_size, shape.num_slots).value();
    in_order.shares = balance::equal_shares(in_order.placement);
    for (size_t l = 0; l < pending_.size(); ++l) {
      const LayerPlan plan = plan_static(l);
      off_.emplace_back(Sharing::kEqual, in_order);
      planned_.emplace_back(sharing, plan);
      online_.emplace_back(sharing, options_.start_in_order ? in_order : plan);
      placements_.push_back(online_.back().placement());
      past_plans_.emplace_back(sharing == Sharing::kEqual ? sharing : Sharing::kExpectedLoad, plan);
    }
  }

  // Serves one iteration. Evaluates before the policy sees the counts, so that no mode knows the
  // iteration that it is evaluated on (except share_update iteration, which re-splits by it).
  void serve(const Iteration& iteration, bool judged) {
    put_in_service();
    const ModelLoads loads = loads_of(iteration, num_layers_);
    ReplayWindow& window = window_of(iteration);
    if (judged) judge(loads, &window);
    if (judged || options_.start_in_order) online_rows_.add(online_, loads);
    if (judged) planned_rows_.add(planned_, loads);
    if (judged) past_.add(loads);
    for (int l = 0; l < num_layers_; ++l) policy_->add_counts(l, iteration.counts_of(l));
    plan(&window);
    ++result_.num_iterations;
    result_.num_tokens += iteration.num_tokens;
    if (judged) judged_tokens_ += iteration.num_tokens;
    options_.iteration_done();
  }

  void put_in_service() {
    for (size_t l = 0; l < pending_.size(); ++l) {
      if (!pending_[l] || pending_[l]->in_service > result_.num_iterations) continue;
      placements_[l] = pending_[l]->plan.placement;
      online_[l].replace(std::move(pending_[l]->plan));
      pending_[l].reset();
    }
  }

  ReplayWindow& window_of(const Iteration& iteration) {
    if (result_.num_iterations % window_iterations_ == 0) {
      result_.windows.push_back(
          {.first_iteration = result_.num_iterations, .domains = {}, .figures = {}});
    }
    ReplayWindow& window = result_.windows.back();
    ++window.num_iterations;
    std::vector<int>& domains = window.domains;
    if (std::find(domains.begin(), domains.end(), iteration.domain) == domains.end()) {
      domains.push_back(iteration.domain);
    }
    return window;
  }

  void judge(const ModelLoads& loads, ReplayWindow* window) {
    for (size_t l = 0; l < loads.size(); ++l) {
      LayerPlan ideal;
      // The window before this iteration: what an ideal balancer could know.
      past_planner_->plan(past_.sum()[l], &ideal);
      past_plans_[l].replace(std::move(ideal));
      window->figures += {.off = off_[l].imbalance(loads[l]),
                          .planned = planned_[l].imbalance(loads[l]),
                          .online = online_[l].imbalance(loads[l]),
                          .perfect = balance::imbalance_lower_bound(loads[l], options_.shape,
                                                                    balance::Split::kWeighted),
                          .past = past_plans_[l].imbalance(loads[l])};
    }
  }

  void plan(ReplayWindow* window) {
    // The balancer is still busy with older counts; these are added to the next ones.
    if (result_.num_iterations < planning_until_) return;
    for (size_t l = 0; l < pending_.size(); ++l) busy_[l] = pending_[l] ? 1 : 0;
    // Processor time: another program on this machine must not make a plan late.
    const int64_t begin = base::thread_cpu_ns();
    const auto updates = policy_->end_iteration(placements_, busy_);
    const double seconds = 1e-9 * static_cast<double>(base::thread_cpu_ns() - begin);
    result_.plan_seconds += seconds;
    result_.longest_plan_seconds = std::max(result_.longest_plan_seconds, seconds);
    planning_until_ = result_.num_iterations + std::max<int64_t>(1, iterations_of(seconds));
    const int64_t delay =
        std::max<int64_t>(options_.copy_iterations, iterations_of(seconds + copy_seconds(updates)));
    for (const LayerUpdate& update : updates) {
      ++window->updates;
      window->moves += static_cast<int64_t>(update.moves.size());
      result_.bytes += update.bytes;
      result_.longest_delay = std::max(result_.longest_delay, 1 + delay);
      // A busy layer gets no update, so nothing pending is overwritten.
      pending_[static_cast<size_t>(update.layer_idx)] = {result_.num_iterations + 1 + delay,
                                                         update.plan};
    }
  }

  // The iterations that begin while something takes so long.
  int64_t iterations_of(double seconds) const {
    if (options_.iteration_ms <= 0.0) return 0;
    constexpr double kMax = 1e9;  // as good as never, and no overflow
    return static_cast<int64_t>(std::min(kMax, std::ceil(1e3 * seconds / options_.iteration_ms)));
  }

  // Ranks copy at the same time; the one with the most moves is the last.
  double copy_seconds(std::span<const LayerUpdate> updates) const {
    std::vector<int64_t> moves(static_cast<size_t>(options_.shape.ep_size));
    for (const LayerUpdate& update : updates) {
      for (const SlotMove& move : update.moves) {
        ++moves[static_cast<size_t>(move.slot / options_.shape.slots_per_rank())];
      }
    }
    return static_cast<double>(*std::max_element(moves.begin(), moves.end())) *
           static_cast<double>(options_.policy.bytes_per_expert) / options_.copy_bytes_per_second;
  }

  ReplayResult finish() {
    for (ReplayWindow& window : result_.windows) {
      result_.mean += window.figures;
      result_.updates += window.updates;
      result_.moves += window.moves;
      window.figures = window.figures / (num_layers_ * static_cast<double>(window.num_iterations));
    }
    const auto judged = static_cast<double>(result_.num_iterations - window_iterations_);
    result_.mean = result_.mean / (num_layers_ * judged);
    result_.online_by_tokens = online_rows_.imbalance();
    result_.static_by_tokens = planned_rows_.imbalance();
    const int64_t tokens = options_.start_in_order ? result_.num_tokens : judged_tokens_;
    result_.moves_per_layer_and_window =
        static_cast<double>(result_.moves) / num_layers_ /
        (static_cast<double>(tokens) / static_cast<double>(options_.window_tokens));
    return std::move(result_);
  }

  const ReplayOptions& options_;
  int num_layers_;
  int top_k_;
  const NextIteration& next_;
  Iteration iteration_;
  int64_t window_iterations_;
  SlidingWindow past_;
  std::unique_ptr<UpdatePolicy> policy_;
  std::unique_ptr<balance::LayerPlanner> planner_;
  std::unique_ptr<balance::LayerPlanner> past_planner_;
  // [layer]
  std::vector<ServedLayer> off_, planned_, online_, past_plans_;
  std::vector<Placement> placements_;  // online
  std::vector<std::optional<PendingUpdate>> pending_;
  std::vector<uint8_t> busy_;
  RowSums online_rows_;
  RowSums planned_rows_;
  int64_t planning_until_ = 0;  // iterations before it find the balancer busy
  int64_t judged_tokens_ = 0;
  ReplayResult result_;
};

constexpr int kMaxCycles = 1000;

Status check_at_least_one(const char* name, int64_t found) {
  if (found >= 1) return {};
  return invalid_input(fmt::format("{}: expected at least 1, found {}", name, found));
}

Status check_options(const ReplayOptions& options) {
  WIDEEP_TRY(check_at_least_one("iteration_tokens", options.stream.iteration_tokens));
  WIDEEP_TRY(check_at_least_one("window_tokens", options.window_tokens));
  WIDEEP_TRY(check_at_least_one("in_flight", options.stream.in_flight));
  if (options.stream.cycles < 1 || options.stream.cycles > kMaxCycles) {
    return invalid_input(
        fmt::format("cycles: expected 1 to {}, found {}", kMaxCycles, options.stream.cycles));
  }
  if (options.copy_iterations < 0) {
    return invalid_input(
        fmt::format("copy_iterations: expected 0 or more, found {}", options.copy_iterations));
  }
  if (!(options.iteration_ms >= 0.0)) {
    return invalid_input(
        fmt::format("iteration_ms: expected 0 or more, found {}", options.iteration_ms));
  }
  if (!(options.copy_bytes_per_second > 0.0)) {
    return invalid_input(fmt::format("copy_bytes_per_second: expected more than 0, found {}",
                                     options.copy_bytes_per_second));
  }
  if (balance::needs_pair_counts(options.planner)) {
    return invalid_input(
        fmt::format("planner: {} needs pairs of experts, which a replay does not "
                    "count; expected another",
                    options.planner));
  }
  return {};
}

}  // namespace

Result<ReplayResult> replay(const NextIteration& next, int num_layers, int top_k,
                            const ReplayOptions& options) {
  WIDEEP_TRY(balance::check_plan_shape(options.shape));
  WIDEEP_TRY(check_options(options));
  return Replayer(next, num_layers, top_k, options).run();
}

Result<ReplayResult> replay(const RequestTrace& trace, const ReplayOptions& options) {
  // Before the stream is made: it relies on valid options.
  WIDEEP_TRY(check_options(options));
  RequestStream stream(&trace, options.stream);
  const NextIteration next = [&stream](Iteration* iteration) { return stream.next(iteration); };
  return replay(next, trace.shape.num_layers, trace.shape.top_k, options);
}

}  // namespace wideep::online
