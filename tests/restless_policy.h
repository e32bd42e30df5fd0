// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "online/update_policy.h"

namespace wideep::tests {

// For tests: shuffles the slots of every layer that is not busy, in every iteration, so that as
// many experts move as possible.
class RestlessPolicy : public online::UpdatePolicy {
 public:
  RestlessPolicy(int num_layers, int num_experts, int layers_at_once, int64_t seed = 11)
      : num_experts_(num_experts),
        layers_at_once_(layers_at_once),
        window_({num_layers, num_experts, 4}, {}),
        rng_(static_cast<uint32_t>(seed)) {}

  void add_counts(int, std::span<const int64_t>) override {}
  void add_counts(int, std::span<const int32_t>) override {}
  std::span<const online::LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                                     std::span<const uint8_t> busy) override {
    updates_.clear();
    for (size_t layer = 0; layer < placements.size(); ++layer) {
      if (busy[layer] != 0 || static_cast<int>(updates_.size()) == layers_at_once_) continue;
      online::LayerUpdate& update = updates_.emplace_back();
      update.layer_idx = static_cast<int>(layer);
      update.plan.placement = placements[layer];
      std::vector<int32_t>& slots = update.plan.placement.slot_to_expert;
      for (size_t i = 0; i < slots.size(); ++i) {
        slots[i] = static_cast<int32_t>(i < static_cast<size_t>(num_experts_)
                                            ? i
                                            : rng_() % static_cast<uint32_t>(num_experts_));
      }
      std::shuffle(slots.begin(), slots.end(), rng_);
    }
    return updates_;
  }
  const online::LoadWindow& window() const override { return window_; }
  std::span<const double> expected_load(int) override { return {}; }

 private:
  int num_experts_;
  int layers_at_once_;
  online::LoadWindow window_;
  std::mt19937 rng_;
  std::vector<online::LayerUpdate> updates_;
};

}  // namespace wideep::tests
