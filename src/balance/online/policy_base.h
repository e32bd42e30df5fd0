// SPDX-License-Identifier: Apache-2.0
//
// What the policies have in common (update_policies.cc, equal_policy.cc).
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/trace.h"
#include "online/layer_rota.h"
#include "online/update_policy.h"

namespace wideep::online {

// The share of a full sample with which a new text is examined in all layers.
inline constexpr double kFirstLook = 0.1;
// A sample that was examined while open is examined again when it has grown by so much.
inline constexpr double kGrown = 1.25;
// Few tokens overstate what a move gains: the search fits their noise too.
inline constexpr double kPriceOfOpen = 2.0;

inline bool is_busy(std::span<const uint8_t> busy, int layer) {
  return !busy.empty() && busy[static_cast<size_t>(layer)] != 0;
}

inline std::vector<SlotMove> changed_slots(const balance::Placement& from,
                                           const balance::Placement& to) {
  std::vector<SlotMove> moves;
  for (int slot = 0; slot < to.num_slots(); ++slot) {
    const auto index = static_cast<size_t>(slot);
    const int32_t expert = to.slot_to_expert[index];
    if (expert != balance::kUnusedSlot && expert != from.slot_to_expert[index]) {
      moves.push_back({slot, expert});
    }
  }
  return moves;
}

// The load window, the turns of layers, and what every update tells.
class PolicyBase : public UpdatePolicy {
 public:
  PolicyBase(const PolicyShape& shape, const PolicyOptions& options)
      : shape_(shape),
        options_(options),
        window_({.num_layers = shape.num_layers,
                 .num_experts = shape.plan.num_experts,
                 .top_k = shape.top_k},
                options.window),
        rota_(shape.num_layers, options.layer_updates_per_iter, options.rests) {}

  void add_counts(int layer_idx, std::span<const int64_t> counts) final {
    window_.add(layer_idx, counts);
  }
  void add_counts(int layer_idx, std::span<const int32_t> counts) final {
    window_.add(layer_idx, counts);
  }

  std::span<const LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                             std::span<const uint8_t> busy) final {
    WIDEEP_CHECK_EQ(placements.size(), static_cast<size_t>(shape_.num_layers));
    updates_.clear();
    const int64_t before = window_.num_iterations();
    window_.end_iteration();
    const bool empty = window_.num_iterations() == before;
    if (empty || window_.num_iterations() <= options_.warm_up_iterations) return updates_;
    order_.clear();
    choose_layers(placements, busy);
    for (const int layer : order_) {
      if (!has_time()) break;
      const base::TraceSpan span(base::Span::kPlan, layer);
      LayerUpdate update;
      update.layer_idx = layer;
      const balance::Placement& from = placements[static_cast<size_t>(layer)];
      if (plan_layer(from, &update)) finish(from, std::move(update));
    }
    std::sort(updates_.begin(), updates_.end(),
              [](const LayerUpdate& a, const LayerUpdate& b) { return a.layer_idx < b.layer_idx; });
    rota_.advance();
    return updates_;
  }

  const LoadWindow& window() const final { return window_; }

 protected:
  // Appends to order_ the layers to plan, the most urgent first; not the busy ones.
  virtual void choose_layers(std::span<const balance::Placement> placements,
                             std::span<const uint8_t> busy) = 0;
  // That another layer may be planned in this turn.
  virtual bool has_time() const { return true; }
  // Writes plan and imbalances. False: no change.
  virtual bool plan_layer(const balance::Placement& from, LayerUpdate* update) = 0;

  PolicyShape shape_;
  PolicyOptions options_;
  LoadWindow window_;
  LayerRota rota_;
  std::vector<int> order_;

 private:
  void finish(const balance::Placement& from, LayerUpdate update) {
    update.moves = changed_slots(from, update.plan.placement);
    update.bytes = static_cast<int64_t>(update.moves.size()) * options_.bytes_per_expert;
    updates_.push_back(std::move(update));
  }

  std::vector<LayerUpdate> updates_;
};

}  // namespace wideep::online
