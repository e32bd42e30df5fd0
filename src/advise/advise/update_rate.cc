// SPDX-License-Identifier: Apache-2.0
//
// Where a layer has a turn in every window, its moves are the same at every rate: they are planned
// once (always_), and rates differ only in when copies are there. A window has two parts, with the
// placement before the turn and the one after it; between them are the turn, the link's queue of
// earlier copies and the iteration in which ranks agree. A lower rate that is nearly as good is
// recommended, and static where the gain is not worth the spare records.
#include "advise/update_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "advise/rebalance.h"
#include "base/try.h"
#include "cost/expert_load.h"
#include "online/layer_rota.h"
#include "wideep/balancer.h"

namespace wideep::advise {
namespace {

using balance::LayerPlan;
using balance::Split;

// Read from the pool, written to the record, read again for its hash.
constexpr double kPassesOfCopy = 3.0;
// A rate that gives less than this part of an iteration is not worth its spare records; neither is
// a higher one that gives less than this part of the gain more.
constexpr double kMinGain = 0.001, kMinShareOfGain = 0.05;

// A layer in a window: with the placement from before, and after its turn.
struct LayerWindow {
  double imbalance_kept = 0.0, imbalance_moved = 0.0;
  double experts_kept = 0.0, experts_moved = 0.0;  // seconds of an iteration
  std::vector<int64_t> copies;                     // [ranks] experts
};

// When layers are updated, in iterations since the first window that judges.
class Turns {
 public:
  Turns(int num_layers, int rate)
      : rota_(num_layers, rate), round_(rota_.num_turns()), groups_(rota_.stride()) {}

  int round() const { return round_; }
  int group(size_t layer) const { return static_cast<int>(layer) % groups_; }
  // The first turn of a group at `begin` or later.
  double next(int group, double begin) const {
    return group + round_ * std::max(0.0, std::ceil((begin - group) / round_));
  }

 private:
  online::LayerRota rota_;
  int round_, groups_;
};

class Walk {
 public:
  Walk(const cost::Hardware& hardware, const model::ModelConfig& config,
       const balance::WindowedLoad& windows, const UpdateRateOptions& options,
       std::vector<balance::Placement> first, balance::Repairer& repairer)
      : hardware_(hardware),
        windows_(windows),
        options_(options),
        first_(std::move(first)),
        repairer_(repairer),
        top_k_(config.routing.top_k),
        shape_{.hidden = config.expert_hidden_size(),
               .intermediate = config.moe_intermediate_size / options.layout.expert_slices,
               .format = options.layout.format,
               .has_gate = config.activation.has_gate()},
        // Stages update their layers at the same time.
        num_turning_((static_cast<int>(first_.size()) + options.layout.stages - 1) /
                     options.layout.stages),
        link_(hardware.host_link.bandwidth > 0.0
                  ? cost::Link{.latency = hardware.host_link.latency,
                               .bandwidth = hardware.host_bandwidth()}
                  : hardware.node_link) {
    double tokens = 0.0;
    for (const auto& window : windows.load[0]) tokens += std::reduce(window.begin(), window.end());
    iterations_ = tokens / top_k_ / windows.num_windows() / options.tokens;
  }

  int num_turning() const { return num_turning_; }
  double iterations() const { return iterations_; }  // of a window

  UpdateRate still() {
    UpdateRate mean;
    for (int window = 1; window < windows_.num_windows(); ++window) {
      for (size_t layer = 0; layer < first_.size(); ++layer) {
        const auto [imbalance, seconds] = judged(first_[layer], layer, window);
        mean.imbalance += imbalance / static_cast<double>(first_.size());
        mean.experts += seconds;
      }
      mean.age += window * iterations_;  // from the middle of window 0 to that of this one
    }
    return divided(mean);
  }

  UpdateRate with_rate(int rate) {
    const Turns turns(num_turning_, rate);
    const bool every_window = turns.round() <= iterations_;
    const std::vector<LayerWindow> own = every_window ? std::vector<LayerWindow>() : moved(turns);
    if (every_window && always_.empty()) always_ = moved(turns);
    UpdateRate mean = timed(turns, every_window ? always_ : own);
    mean.rate = rate;
    mean.spare_bytes = spare_bytes(rate);
    return mean;
  }

  double spare_bytes(int rate) const {
    return static_cast<double>(options_.layout.num_slots) / options_.layout.ep * std::min(rate, 2) *
           shape_.bytes();
  }

 private:
  size_t place(int window, size_t layer) const {
    return static_cast<size_t>(window - 1) * first_.size() + layer;
  }

  std::pair<double, double> judged(const balance::Placement& placement, size_t layer,
                                   int window) const {
    const cost::PlacedLayer placed =
        cost::placed_as(placement, windows_.load[layer][static_cast<size_t>(window)], top_k_);
    const cost::ProductKernel& kernel = hardware_.experts_in(options_.layout.format);
    return {cost::imbalance_of(placed),
            cost::slowest_time(hardware_, kernel, shape_, placed, options_.tokens).seconds()};
  }

  // Stage by stage, layers of a stage in order.
  int group(const Turns& turns, size_t layer) const {
    return turns.group(layer % static_cast<size_t>(num_turning_));
  }

  std::vector<LayerWindow> moved(const Turns& turns) {
    std::vector<LayerWindow> all;
    std::vector<LayerPlan> plans;
    for (const balance::Placement& placement : first_) plans.push_back({.placement = placement});
    for (int window = 1; window < windows_.num_windows(); ++window) {
      const double begin = (window - 1) * iterations_;
      for (size_t layer = 0; layer < plans.size(); ++layer) {
        LayerPlan& plan = plans[layer];
        LayerWindow& each = all.emplace_back();
        each.copies.assign(static_cast<size_t>(options_.layout.ep), 0);
        std::tie(each.imbalance_kept, each.experts_kept) = judged(plan.placement, layer, window);
        each.imbalance_moved = each.imbalance_kept;
        each.experts_moved = each.experts_kept;
        if (turns.next(group(turns, layer), begin) >= begin + iterations_) continue;
        const balance::Placement kept = plan.placement;
        repairer_.repair(windows_.load[layer][static_cast<size_t>(window) - 1], plan, &plan);
        each.copies = copies_of_ranks(kept, plan.placement);
        std::tie(each.imbalance_moved, each.experts_moved) = judged(plan.placement, layer, window);
      }
    }
    return all;
  }

  // When a layer's experts are in place, in iterations after the window began: its turn, the link's
  // time for its turn's copies and those before, and the iteration in which all ranks agree.
  std::vector<double> delays(const Turns& turns, const std::vector<LayerWindow>& layers, int window,
                             double* free_at, double* bytes) const {
    const double begin = (window - 1) * iterations_;
    std::vector<std::pair<double, size_t>> order;
    for (size_t layer = 0; layer < first_.size(); ++layer) {
      order.emplace_back(turns.next(group(turns, layer), begin), layer);
    }
    std::ranges::sort(order);
    std::vector<double> found(first_.size(), iterations_);
    for (const auto& [turn, layer] : order) {
      const std::vector<int64_t>& copies = layers[place(window, layer)].copies;
      const double max = static_cast<double>(*std::ranges::max_element(copies)) * shape_.bytes();
      if (turn >= begin + iterations_) break;
      *free_at = std::max(*free_at, turn) + max / link_.bandwidth / options_.iteration_seconds;
      *bytes += max;
      found[layer] = std::min(iterations_, *free_at + 1.0 - begin);
    }
    return found;
  }

  UpdateRate timed(const Turns& turns, const std::vector<LayerWindow>& layers) const {
    UpdateRate mean;
    double free_at = 0.0, busiest = 0.0, all = 0.0;
    std::vector<int> since(first_.size(), 0);  // windows that a layer's placement is old
    for (int window = 1; window < windows_.num_windows(); ++window) {
      const std::vector<double> late = delays(turns, layers, window, &free_at, &busiest);
      for (size_t layer = 0; layer < first_.size(); ++layer) {
        const LayerWindow& each = layers[place(window, layer)];
        const double kept = late[layer] / iterations_;
        const bool is_moved = kept < 1.0;
        mean.imbalance += std::lerp(each.imbalance_moved, each.imbalance_kept, kept) /
                          static_cast<double>(first_.size());
        mean.experts += std::lerp(each.experts_moved, each.experts_kept, kept);
        mean.age += std::lerp(1.0, 1.0 + since[layer], kept) * iterations_ /
                    static_cast<double>(first_.size());
        since[layer] = is_moved ? 1 : since[layer] + 1;
        all += static_cast<double>(std::reduce(each.copies.begin(), each.copies.end()));
      }
    }
    mean = divided(mean);
    const double iterations = iterations_ * (windows_.num_windows() - 1);
    mean.moves = all / iterations;
    mean.bytes = busiest / iterations;
    mean.link_share = mean.bytes / link_.bandwidth / options_.iteration_seconds;
    mean.copying = hardware_.divisible
                       ? kPassesOfCopy * mean.moves * shape_.bytes() / hardware_.node_bandwidth
                       : mean.bytes / hardware_.memory_bandwidth;
    return mean;
  }

  UpdateRate divided(UpdateRate sum) const {
    for (double* each : {&sum.age, &sum.imbalance, &sum.experts}) {
      *each /= windows_.num_windows() - 1;
    }
    return sum;
  }

  const cost::Hardware& hardware_;
  const balance::WindowedLoad& windows_;
  const UpdateRateOptions& options_;
  std::vector<balance::Placement> first_;  // [layers]
  balance::Repairer& repairer_;
  int top_k_;
  cost::ExpertShape shape_;
  int num_turning_;  // layers of a stage
  cost::Link link_;
  double iterations_ = 0.0;
  std::vector<LayerWindow> always_;  // where every layer has a turn in every window
};

// The rate with the least time, or a lower one that is nearly as good.
const UpdateRate& best_of(const std::vector<UpdateRate>& rates, double iteration_seconds) {
  const UpdateRate& still = rates.front();
  const UpdateRate& min = *std::ranges::min_element(rates, {}, &UpdateRate::seconds);
  const double gain = still.seconds() - min.seconds();
  if (gain < kMinGain * iteration_seconds) return still;
  return *std::ranges::find_if(rates, [&](const UpdateRate& each) {
    return each.seconds() <= min.seconds() + kMinShareOfGain * gain;
  });
}

std::string reason_of(const std::vector<UpdateRate>& rates, const UpdateRate& best,
                      const UpdateRateOptions& options) {
  const UpdateRate& still = rates.front();
  const auto gain = [&](const UpdateRate& each) {
    return 100.0 * (still.seconds() - each.seconds()) / options.iteration_seconds;
  };
  if (best.rate == 0) {
    const UpdateRate& min = *std::min_element(
        rates.begin() + 1, rates.end(),
        [](const UpdateRate& a, const UpdateRate& b) { return a.seconds() < b.seconds(); });
    return fmt::format(
        "updates 0 (static): imbalance {:.3f}; {} layer{} an iteration would leave {:.3f} and {} "
        "{:.2f} % of an iteration",
        still.imbalance, min.rate, min.rate == 1 ? "" : "s", min.imbalance,
        gain(min) < 0.0 ? "cost" : "save only", std::abs(gain(min)));
  }
  return fmt::format(
      "updates of {} layer{} an iteration: imbalance {:.3f} -> {:.3f} against static, {:+.1f} % of "
      "an iteration; {:.2f} experts move in one, the link is busy {:.1f} % of the time, an "
      "iteration is {:.2f} % longer",
      best.rate, best.rate == 1 ? "" : "s", still.imbalance, best.imbalance, -gain(best),
      best.moves, 100.0 * best.link_share, 100.0 * best.copying / options.iteration_seconds);
}

Status check_input(const model::ModelConfig& config, const balance::ModelLoad& planned,
                   const balance::WindowedLoad& windows) {
  const int layers = config.num_moe_layers(), experts = config.routing.num_experts;
  const bool same = windows.num_experts == experts && planned.num_experts == experts &&
                    windows.load.size() == planned.load.size() &&
                    static_cast<int>(windows.load.size()) == layers;
  if (same) return {};
  return invalid_input(fmt::format(
      "statistics: {} layers of {} experts, but the model has {} MoE layers of {}; take "
      "statistics of this model",
      windows.load.size(), windows.num_experts, layers, experts));
}

Result<std::vector<balance::Placement>> first_placements(const balance::PlanShape& shape,
                                                         const balance::ModelLoad& planned) {
  WIDEEP_TRY_ASSIGN(const auto planner,
                    balance::make_planner("wideep", shape, {.split = Split::kWeighted}));
  std::vector<balance::Placement> placements;
  LayerPlan plan;
  for (const std::vector<double>& load : planned.load) {
    planner->plan(load, &plan);
    placements.push_back(plan.placement);
  }
  return placements;
}

}  // namespace

Result<UpdateRates> weigh_update_rates(const cost::Hardware& hardware,
                                       const model::ModelConfig& config,
                                       const balance::ModelLoad& planned,
                                       const balance::WindowedLoad& windows,
                                       const UpdateRateOptions& options) {
  const cost::Layout& layout = options.layout;
  UpdateRates found;
  if (layout.ep == 1 || config.num_moe_layers() == 0) {
    found.reason = "updates 0 (static): every rank has all experts";
    return found;
  }
  WIDEEP_TRY(check_input(config, planned, windows));
  if (windows.num_windows() < 2) {
    found.reason =
        "updates 0 (static): statistics of one window do not tell how the load changes; give "
        "--stats of several iterations";
    return found;
  }
  const balance::PlanShape shape{
      .num_experts = windows.num_experts, .ep_size = layout.ep, .num_slots = layout.num_slots};
  WIDEEP_TRY_ASSIGN(auto first, first_placements(shape, planned));
  WIDEEP_TRY_ASSIGN(
      const auto repairer,
      balance::make_repairer(shape, {.split = Split::kWeighted, .tolerance = options.tolerance}));
  Walk walk(hardware, config, windows, options, std::move(first), *repairer);
  found.rates.push_back(walk.still());
  for (int rate = 1; rate <= walk.num_turning(); rate *= 2) {
    if (walk.spare_bytes(rate) > options.spare_bytes) break;
    found.rates.push_back(walk.with_rate(rate));
  }
  if (found.rates.size() == 1) {
    found.reason =
        fmt::format("updates 0 (static): spare records of {:.1f} GB do not fit beside this batch",
                    walk.spare_bytes(1) / 1e9);
    return found;
  }
  const UpdateRate& best = best_of(found.rates, options.iteration_seconds);
  found.best = best.rate;
  found.reason = reason_of(found.rates, best, options);
  return found;
}

}  // namespace wideep::advise
