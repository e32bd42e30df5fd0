// SPDX-License-Identifier: Apache-2.0
//
// Two stages. look() is cheap and is done for every layer that is not busy: one sum of loads, and
// the test whether noise explains the hottest rank. Only layers that pass are planned.
// plan_layer() runs one repairer per limit 1, 2, 4, … instead of one for each number of moves: the
// net gain is flat around its maximum, and a run costs more than a move in excess.
//
// The newest sample is tested first, then the sum of all: a small imbalance needs more tokens than
// one sample has.
#include "online/equal_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/try.h"
#include "online/placement_judge.h"
#include "online/policy_base.h"
#include "online/sample_set.h"
#include "plan/moves.h"

namespace wideep::online {
namespace {

using balance::LayerPlan;
using balance::Placement;

constexpr double kAll = std::numeric_limits<double>::infinity();

// Of policy wideep's memory of all kinds of text. With equal shares a placement that is good for
// all of them is good for none: half the memory leaves 0.090 instead of 0.136 where text changes
// for good, and 0.108 instead of 0.113 where it comes back (three made-up kinds, 64 experts on 8
// ranks).
constexpr double kMemory = 0.5;

class EqualPolicy : public PolicyBase {
 public:
  EqualPolicy(const PolicyShape& shape, const PolicyOptions& options)
      : PolicyBase(shape, options),
        num_ranks_(shape.plan.num_live_ranks()),
        needed_(-std::log(options.false_alarm_rate) + std::log(num_ranks_)),
        price_(options.rows_per_move * num_ranks_ /
               (static_cast<double>(options.horizon_tokens) * shape.top_k)),
        samples_(shape.plan.num_experts, options.window.num_samples, kMemory),
        judge_(Sharing::kEqual, shape.plan.num_experts, shape.plan.ep_size),
        layers_(static_cast<size_t>(shape.num_layers)) {}

  Status make_repairers() {
    const int max = std::min(options_.max_moves, shape_.plan.num_slots);
    for (int moves = 1;; moves *= 2) {
      const balance::RepairOptions options = {.split = balance::Split::kEqual,
                                              .tolerance = options_.tolerance,
                                              .max_moves = std::min(moves, max)};
      WIDEEP_TRY_ASSIGN(auto repairer, balance::make_repairer(shape_.plan, options));
      repairers_.push_back(std::move(repairer));
      if (moves >= max) return {};
    }
  }

  std::span<const double> expected_load(int layer_idx) final {
    if (window_.num_samples() == 0) return window_.decayed(layer_idx);
    samples_.assign(window_, layer_idx, num_ranks_, 0.0, window_.open_is_new_text());
    return samples_.expected();
  }

 protected:
  void choose_layers(std::span<const Placement> placements, std::span<const uint8_t> busy) final {
    for (int l = 0; l < shape_.num_layers; ++l) {
      if (is_busy(busy, l)) continue;
      Layer& layer = layers_[static_cast<size_t>(l)];
      layer.found = look(l, placements[static_cast<size_t>(l)]);
      if (layer.found.due || layer.found.from_open) order_.push_back(l);
    }
  }

  bool plan_layer(const Placement& from, LayerUpdate* update) final {
    Layer& layer = layers_[static_cast<size_t>(update->layer_idx)];
    const Look found = layer.found;
    layer.samples_seen = window_.samples_completed();
    layer.open_seen = window_.open_tokens();
    samples_.assign(window_, update->layer_idx, num_ranks_, 0.0, found.from_open);
    if (samples_.size() == 0) return false;
    update->urgent = found.from_open || found.significant;
    update->imbalance_before = judge_.imbalance(samples_, from, kAll);
    if (update->imbalance_before <= options_.tolerance) return false;
    const double price = found.from_open ? kPriceOfOpen * price_ : price_;
    double best_net = 0.0;
    int last_moves = -1;
    for (const auto& repairer : repairers_) {
      from_.placement = from;
      const auto report = repairer->repair(samples_.expected(), from_, &trial_);
      if (report.moves == last_moves) break;  // the limit no longer matters
      last_moves = report.moves;
      const double after = judge_.imbalance(samples_, trial_.placement, kAll);
      const double net = update->imbalance_before - after - price * report.moves;
      if (net <= best_net) continue;
      best_net = net;
      update->plan = trial_;
      update->imbalance_after = after;
    }
    if (best_net <= 0.0) return false;
    balance::align_slots(from, &update->plan);
    return true;
  }

 private:
  struct Look {
    bool due = false;        // its turn, and there is evidence in complete samples
    bool from_open = false;  // the open sample is reason enough
    bool significant = false;
  };
  struct Layer {
    Look found;  // in this turn
    // When it was last planned for:
    int64_t samples_seen = -1;  // complete ones
    double open_seen = 0.0;     // tokens of the open one
  };
  struct Evidence {
    double imbalance = 0.0;
    bool significant = false;
  };

  Evidence evidence(const Placement& placement, std::span<const double> counts) {
    const double rows = std::accumulate(counts.begin(), counts.end(), 0.0);
    if (rows == 0.0) return {};
    shares_.placement = placement;
    judge_.choose_shares(counts, &shares_);
    const std::vector<double> loads = balance::rank_loads(placement, counts, shares_.shares);
    const double expected = rows / num_ranks_;
    const double ratio = *std::max_element(loads.begin(), loads.end()) / expected;
    return {.imbalance = ratio - 1.0,
            .significant = expected * (ratio * std::log(ratio) - ratio + 1.0) >= needed_};
  }

  std::span<const double> sum_of_samples(int layer_idx) {
    sum_.assign(static_cast<size_t>(shape_.plan.num_experts), 0.0);
    for (int age = 0; age < window_.num_samples(); ++age) {
      const std::span<const double> sample = window_.sample(layer_idx, age);
      for (size_t e = 0; e < sum_.size(); ++e) sum_[e] += sample[e];
    }
    return sum_;
  }

  Look look(int layer_idx, const Placement& placement) {
    const Layer& layer = layers_[static_cast<size_t>(layer_idx)];
    Look found;
    const double tokens = window_.open_tokens();
    const bool looked_at = layer.samples_seen == window_.samples_completed() &&
                           tokens >= layer.open_seen && tokens < kGrown * layer.open_seen;
    if (tokens > 0.0 && !looked_at && options_.false_alarm_rate > 0.0) {
      const Evidence open = evidence(placement, window_.open(layer_idx));
      const bool new_text =
          window_.open_is_new_text() &&
          tokens >= kFirstLook * static_cast<double>(options_.window.sample_tokens);
      found.significant = open.significant;
      found.from_open = open.significant || (new_text && open.imbalance > options_.tolerance);
    }
    if (!found.from_open && rota_.has_turn(layer_idx) && window_.num_samples() > 0 &&
        layer.samples_seen != window_.samples_completed()) {
      found.significant = evidence(placement, window_.sample(layer_idx, 0)).significant;
      // A small imbalance needs more tokens than a sample has.
      found.due = found.significant || evidence(placement, sum_of_samples(layer_idx)).significant;
    }
    return found;
  }

  int num_ranks_;  // live ones
  double needed_;  // evidence
  double price_;   // of a move, in imbalance
  SampleSet samples_;
  PlacementJudge judge_;
  std::vector<std::unique_ptr<balance::Repairer>> repairers_;  // by their limits: 1, 2, 4, …
  std::vector<double> sum_;                                    // [E] scratch, as the next three
  LayerPlan shares_;
  LayerPlan from_;
  LayerPlan trial_;
  std::vector<Layer> layers_;
};

}  // namespace

Result<std::unique_ptr<UpdatePolicy>> make_equal_policy(const PolicyShape& shape,
                                                        const PolicyOptions& options) {
  // The same options, so the same checks.
  WIDEEP_TRY(make_update_policy(shape, options).status());
  auto policy = std::make_unique<EqualPolicy>(shape, options);
  WIDEEP_TRY(policy->make_repairers());
  return std::unique_ptr<UpdatePolicy>(std::move(policy));
}

}  // namespace wideep::online
