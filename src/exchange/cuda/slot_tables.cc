// SPDX-License-Identifier: Apache-2.0
//
// All layers lie in five arrays, each layer's part at a fixed place: a captured graph holds
// addresses, and a new placement must appear behind them. The numbers come from the CPU's
// SlotChooser, so both choose the same slots.
#include "cuda/slot_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "wideep/balancer.h"

namespace wideep::cuda {
namespace {

size_t bytes_of_layer(const ExchangeShape& shape) {
  return (static_cast<size_t>(shape.num_experts) + 1) * sizeof(int32_t) +
         static_cast<size_t>(shape.num_slots()) * (sizeof(int32_t) + 3 * sizeof(int64_t));
}

template <typename T>
Status write_array(Devices& devices, int rank, const std::vector<T>& values, T* to) {
  return devices.write(rank, to, values.data(), values.size() * sizeof(T));
}

}  // namespace

int first_used_slot(const balance::Placement& placement, std::span<const int> ranks) {
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    if (placement.slot_to_expert[static_cast<size_t>(slot)] == balance::kUnusedSlot) continue;
    if (std::ranges::find(ranks, placement.rank_of_slot(slot)) != ranks.end()) return slot;
  }
  return -1;
}

SlotTables::SlotTables(Devices& devices, const ExchangeShape& shape, int rank, int num_layers)
    : devices_(&devices),
      shape_(shape),
      rank_(rank),
      chooser_({.ep_size = shape.ep_size,
                .num_experts = shape.num_experts,
                .slots_per_rank = shape.slots_per_rank,
                .top_k = shape.top_k,
                .max_tokens = shape.max_tokens},
               rank),
      placements_(static_cast<size_t>(num_layers)) {}

size_t SlotTables::num_bytes(const ExchangeShape& shape, int num_layers) {
  return static_cast<size_t>(num_layers) * bytes_of_layer(shape);
}

Result<SlotTables> SlotTables::create(Devices& devices, const ExchangeShape& shape, int rank,
                                      int num_layers) {
  SlotTables made(devices, shape, rank, num_layers);
  const auto layers = static_cast<size_t>(num_layers);
  const size_t slots = layers * static_cast<size_t>(shape.num_slots());
  WIDEEP_TRY(allocate_array(devices, rank, layers * (static_cast<size_t>(shape.num_experts) + 1),
                            &made.first_));
  WIDEEP_TRY(allocate_array(devices, rank, slots, &made.slots_));
  WIDEEP_TRY(allocate_array(devices, rank, slots, &made.parts_));
  WIDEEP_TRY(allocate_array(devices, rank, slots, &made.credit_));
  WIDEEP_TRY(allocate_array(devices, rank, slots, &made.quotas_));
  return made;
}

Status SlotTables::check_layer(int layer) const {
  const auto num_layers = static_cast<int>(placements_.size());
  if (layer >= 0 && layer < num_layers) return {};
  return invalid_input(fmt::format("layer: expected 0 to {}, found {}", num_layers - 1, layer));
}

Status SlotTables::check(int layer, const balance::Placement& placement,
                         std::span<const double> shares) const {
  WIDEEP_TRY(check_layer(layer));
  if (placement.num_experts != shape_.num_experts || placement.ep_size != shape_.ep_size ||
      placement.num_slots() != shape_.num_slots()) {
    return invalid_input(fmt::format(
        "placement of layer {}: expected {} experts on {} slots of {} ranks, found {} on {} of {}",
        layer, shape_.num_experts, shape_.num_slots(), shape_.ep_size, placement.num_experts,
        placement.num_slots(), placement.ep_size));
  }
  WIDEEP_TRY(balance::check_placement(placement));
  return shares.empty() ? Status() : balance::check_shares(placement, shares);
}

Status SlotTables::set(int layer, const balance::Placement& placement,
                       std::span<const double> shares) {
  chooser_.set_placement(layer, placement, shares);
  const ep::SlotChooser::ReplicaTable table = chooser_.replica_table(layer);
  const auto at = static_cast<size_t>(layer);
  const size_t first_slot = at * static_cast<size_t>(shape_.num_slots());
  WIDEEP_TRY(write_array(*devices_, rank_, table.first,
                         first_ + at * (static_cast<size_t>(shape_.num_experts) + 1)));
  WIDEEP_TRY(write_array(*devices_, rank_, table.slots, slots_ + first_slot));
  WIDEEP_TRY(write_array(*devices_, rank_, table.parts, parts_ + first_slot));
  WIDEEP_TRY(write_array(*devices_, rank_, table.credit, credit_ + first_slot));
  placements_[at] = placement;
  return {};
}

void SlotTables::leave_out(std::span<const int> ranks) {
  for (balance::Placement& placement : placements_) {
    if (first_used_slot(placement, ranks) >= 0) placement = {};
  }
}

Result<ReplicaTable> SlotTables::table(int layer) const {
  WIDEEP_TRY(check_layer(layer));
  const auto at = static_cast<size_t>(layer);
  if (placements_[at].num_experts == 0) {
    return invalid_input(
        fmt::format("layer {} has no placement, or one with a rank that was left out: expected "
                    "set_placement before choose",
                    layer));
  }
  const size_t first_slot = at * static_cast<size_t>(shape_.num_slots());
  return ReplicaTable{.first = first_ + at * (static_cast<size_t>(shape_.num_experts) + 1),
                      .slots = slots_ + first_slot,
                      .parts = parts_ + first_slot,
                      .credit = credit_ + first_slot,
                      .quotas = quotas_ + first_slot};
}

}  // namespace wideep::cuda
