// SPDX-License-Identifier: Apache-2.0
//
// The online policies for an engine that copies experts itself. Two things differ from our own
// balancer. There is no ledger, since the engine's times are not known here, so the policy never
// rests. And an update counts as made when it is returned: the next step plans from its placement,
// and `busy` keeps the policy off layers whose copies are under way.
#include "wideep/online_repairer.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "online/equal_policy.h"
#include "online/update_policy.h"

namespace wideep::online {
namespace {

using balance::Placement;

constexpr double kEqualTolerance = 0.01;

bool is_equal(const RepairerOptions& options) { return options.split == balance::Split::kEqual; }

PolicyOptions to_policy_options(const RepairerShape& shape, const RepairerOptions& options) {
  PolicyOptions policy;
  policy.share_update = options.share_update;
  // The engine decides how many layers it copies at a time: `busy` names those under way.
  policy.layer_updates_per_iter = shape.num_layers;
  policy.rests = false;
  policy.bytes_per_expert = options.bytes_per_expert;
  policy.false_alarm_rate = options.false_alarm_rate;
  if (is_equal(options)) policy.tolerance = kEqualTolerance;
  if (options.tolerance != 0.0) policy.tolerance = options.tolerance;
  policy.max_moves = options.max_moves;
  policy.rows_per_move = options.rows_per_move;
  policy.horizon_tokens = options.horizon_tokens != 0 ? options.horizon_tokens
                                                      : default_horizon_tokens(shape.plan.ep_size);
  policy.turn_ms = options.turn_ms;
  policy.window.sample_tokens = options.sample_tokens;
  policy.window.num_samples = options.num_samples;
  return policy;
}

Status check_fits(const RepairerShape& shape, int layer, const Placement& placement) {
  const balance::PlanShape& plan = shape.plan;
  Status status = balance::check_placement(placement);
  if (status.ok() &&
      (placement.num_experts != plan.num_experts || placement.ep_size != plan.ep_size ||
       placement.num_slots() != plan.num_slots)) {
    status = invalid_input(
        fmt::format("expected {} experts in {} slots on {} ranks, found {} in {} on {}",
                    plan.num_experts, plan.num_slots, plan.ep_size, placement.num_experts,
                    placement.num_slots(), placement.ep_size));
  }
  for (int slot = 0; status.ok() && slot < plan.num_slots; ++slot) {
    const int per_rank = plan.slots_per_rank();
    const bool usable = slot % per_rank < plan.usable_slots_of(slot / per_rank);
    if (usable || placement.slot_to_expert[static_cast<size_t>(slot)] == balance::kUnusedSlot) {
      continue;
    }
    status = invalid_input(
        fmt::format("slot {} of rank {} is not usable (rank_slots), expected no expert in it; "
                    "repair the placement first",
                    slot, slot / per_rank));
  }
  return status.at(fmt::format("placement of layer {}", layer));
}

}  // namespace

class OnlineRepairer::Impl {
 public:
  Impl(const RepairerShape& shape, std::unique_ptr<UpdatePolicy> policy,
       std::vector<Placement> placements)
      : shape_(shape), policy_(std::move(policy)), placements_(std::move(placements)) {}

  Result<std::span<const LayerUpdate>> step(std::span<const int64_t> counts,
                                            std::span<const uint8_t> busy) {
    WIDEEP_TRY(check(counts, busy));
    const auto experts = static_cast<size_t>(shape_.plan.num_experts);
    for (int l = 0; l < shape_.num_layers; ++l) {
      policy_->add_counts(l, counts.subspan(static_cast<size_t>(l) * experts, experts));
    }
    const std::span<const LayerUpdate> updates = policy_->end_iteration(placements_, busy);
    for (const LayerUpdate& update : updates) {
      placements_[static_cast<size_t>(update.layer_idx)] = update.plan.placement;
    }
    return updates;
  }

  Status set_placement(int layer_idx, Placement placement) {
    if (layer_idx < 0 || layer_idx >= shape_.num_layers) {
      return invalid_input(
          fmt::format("layer: expected 0 to {}, found {}", shape_.num_layers - 1, layer_idx));
    }
    WIDEEP_TRY(check_fits(shape_, layer_idx, placement));
    placements_[static_cast<size_t>(layer_idx)] = std::move(placement);
    return {};
  }

  std::span<const Placement> placements() const { return placements_; }

 private:
  Status check(std::span<const int64_t> counts, std::span<const uint8_t> busy) const {
    const auto layers = static_cast<size_t>(shape_.num_layers);
    const auto experts = static_cast<size_t>(shape_.plan.num_experts);
    if (counts.size() != layers * experts) {
      return invalid_input(fmt::format("counts: expected {} layers of {} experts, found {} values",
                                       layers, experts, counts.size()));
    }
    if (!busy.empty() && busy.size() != layers) {
      return invalid_input(fmt::format("busy: expected one value for each of {} layers, found {}",
                                       layers, busy.size()));
    }
    // Sums of steps must stay exact.
    constexpr int64_t kMax = int64_t{1} << 53;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] >= 0 && counts[i] <= kMax) continue;
      return invalid_input(fmt::format("counts: layer {}, expert {}: expected 0 to 2^53, found {}",
                                       i / experts, i % experts, counts[i]));
    }
    return {};
  }

  RepairerShape shape_;
  std::unique_ptr<UpdatePolicy> policy_;
  std::vector<Placement> placements_;
};

Result<OnlineRepairer> OnlineRepairer::create(const RepairerShape& shape,
                                              const RepairerOptions& options,
                                              std::vector<Placement> placements) {
  const PolicyShape policy_shape = {shape.plan, shape.num_layers, shape.top_k};
  const PolicyOptions policy_options = to_policy_options(shape, options);
  WIDEEP_TRY_ASSIGN(auto policy, is_equal(options)
                                     ? make_equal_policy(policy_shape, policy_options)
                                     : make_update_policy(policy_shape, policy_options));
  if (placements.size() != static_cast<size_t>(shape.num_layers)) {
    return invalid_input(fmt::format("placements: expected one for each of {} layers, found {}",
                                     shape.num_layers, placements.size()));
  }
  for (int l = 0; l < shape.num_layers; ++l) {
    WIDEEP_TRY(check_fits(shape, l, placements[static_cast<size_t>(l)]));
  }
  return OnlineRepairer(std::make_unique<Impl>(shape, std::move(policy), std::move(placements)));
}

OnlineRepairer::OnlineRepairer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OnlineRepairer::OnlineRepairer(OnlineRepairer&&) noexcept = default;
OnlineRepairer& OnlineRepairer::operator=(OnlineRepairer&&) noexcept = default;
OnlineRepairer::~OnlineRepairer() = default;

Result<std::span<const LayerUpdate>> OnlineRepairer::step(std::span<const int64_t> counts,
                                                          std::span<const uint8_t> busy) {
  return impl_->step(counts, busy);
}

std::span<const Placement> OnlineRepairer::placements() const { return impl_->placements(); }

Status OnlineRepairer::set_placement(int layer_idx, Placement placement) {
  return impl_->set_placement(layer_idx, std::move(placement));
}

}  // namespace wideep::online
