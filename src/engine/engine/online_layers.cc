// SPDX-License-Identifier: Apache-2.0
#include "engine/online_layers.h"

#include "base/trace.h"

namespace wideep::engine {

OnlineLayers::OnlineLayers(const online::OnlineSetup& setup, int rank, model::ExpertSlots& slots,
                           model::MoeRunner& moe)
    : slots_(slots), moe_(moe), rank_(setup, rank) {
  for (const auto& [layer, placement] : setup.placement.layers) {
    layers_.push_back(layer);
    placements_.push_back(placement);
  }
}

// The slots may have records of the updater's memory, which ends with it.
OnlineLayers::~OnlineLayers() {
  rank_.stop();
  slots_.take_in();
}

void OnlineLayers::apply(std::span<const transport::AgreedWords> of_ranks, int64_t iteration) {
  rank_.apply(of_ranks, iteration,
              [this](const online::PublishedLayer& layer) { switch_layer(layer); });
}

void OnlineLayers::switch_layer(const online::PublishedLayer& published) {
  const int layer = layers_[published.layer];
  const base::TraceSpan span(base::Span::kSwitchLayer, layer);
  // Each slot swaps a pointer: the record that it gives up is the spare record of the next update.
  const auto first = static_cast<size_t>(rank_.first_slot());
  for (online::SlotRecord& slot : published.slots) {
    const int32_t expert = published.slot_to_expert[first + static_cast<size_t>(slot.local_slot)];
    slot.record = slots_.exchange(layer, slot.local_slot, expert, slot.record);
  }
  balance::Placement& placement = placements_[published.layer];
  placement.slot_to_expert.assign(published.slot_to_expert.begin(), published.slot_to_expert.end());
  moe_.set_placement(layer, placement, published.shares);
}

}  // namespace wideep::engine
