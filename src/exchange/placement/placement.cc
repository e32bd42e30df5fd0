// SPDX-License-Identifier: Apache-2.0
//
// Checks go from the whole to the single slot: a wrong number of slots would otherwise be an error
// of some slot. The routing table is a counting sort of the slots by expert, which is stable, so
// the replicas of an expert ascend; every rank relies on that order.
#include "wideep/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/try.h"

namespace wideep::balance {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// REQUIRES: every id is in range.
Status check_every_expert_placed(const Placement& placement) {
  std::vector<bool> placed(static_cast<size_t>(placement.num_experts), false);
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) placed[static_cast<size_t>(expert)] = true;
  }
  for (int expert = 0; expert < placement.num_experts; ++expert) {
    if (!placed[static_cast<size_t>(expert)]) {
      return invalid_input(fmt::format(
          "expert {} has no slot, expected at least one slot for each of the {} experts", expert,
          placement.num_experts));
    }
  }
  return {};
}

}  // namespace

std::span<const int32_t> Placement::experts_of_rank(int rank) const {
  const auto count = static_cast<size_t>(slots_per_rank());
  return std::span(slot_to_expert).subspan(static_cast<size_t>(rank) * count, count);
}

int Placement::num_ranks_in_use() const {
  int count = 0;
  for (int rank = 0; rank < ep_size; ++rank) {
    const auto experts = experts_of_rank(rank);
    count +=
        std::any_of(experts.begin(), experts.end(), [](int32_t e) { return e != kUnusedSlot; });
  }
  return count;
}

int RoutingTable::num_replicas(int expert) const {
  return static_cast<int>(replicas(expert).size());
}

std::span<const int32_t> RoutingTable::replicas(int expert) const {
  const auto begin = static_cast<size_t>(replica_start[static_cast<size_t>(expert)]);
  const auto end = static_cast<size_t>(replica_start[static_cast<size_t>(expert) + 1]);
  return std::span(slot_ids).subspan(begin, end - begin);
}

Status check_slot_counts(int num_experts, int ep_size, int num_slots) {
  if (num_experts < 1) {
    return invalid_input(fmt::format("expected at least 1 expert, found {}", num_experts));
  }
  if (ep_size < 1) return invalid_input(fmt::format("expected at least 1 rank, found {}", ep_size));
  const int64_t needed = round_up(num_experts, ep_size);
  // The order of the checks gives the most useful message: with too few slots for experts or ranks,
  // the remainder does not matter.
  if (num_slots < num_experts) {
    return invalid_input(
        fmt::format("num_slots: expected at least one slot for each of {} experts, found {}; set "
                    "num_slots to {} or a greater multiple of {}",
                    num_experts, num_slots, needed, ep_size));
  }
  if (ep_size > num_slots) {
    return invalid_input(
        fmt::format("num_slots: {} ranks cannot share {} slots, every rank needs at least one; set "
                    "num_slots to "
                    "a multiple of {} or use fewer ranks",
                    ep_size, num_slots, ep_size));
  }
  if (num_slots > kMaxSlots) {
    return invalid_input(
        fmt::format("num_slots: expected at most {}, found {}", kMaxSlots, num_slots));
  }
  if (num_slots % ep_size != 0) {
    return invalid_input(
        fmt::format("num_slots: expected a multiple of the {} ranks, found {}; set num_slots to {}",
                    ep_size, num_slots, round_up(num_slots, ep_size)));
  }
  return {};
}

Status check_placement(const Placement& placement) {
  WIDEEP_TRY(check_slot_counts(placement.num_experts, placement.ep_size, placement.num_slots()));
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert != kUnusedSlot && (expert < 0 || expert >= placement.num_experts)) {
      return invalid_input(fmt::format(
          "slot {}: expected an expert id from 0 to {}, or {} for an unused slot, found {}", slot,
          placement.num_experts - 1, kUnusedSlot, expert));
    }
  }
  return check_every_expert_placed(placement);
}

// Counting sort of the slots by expert: stable, so slot ids ascend within an expert.
RoutingTable make_routing_table(const Placement& placement) {
  RoutingTable table;
  table.replica_start.assign(static_cast<size_t>(placement.num_experts) + 1, 0);
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) ++table.replica_start[static_cast<size_t>(expert) + 1];
  }
  for (size_t i = 1; i < table.replica_start.size(); ++i) {
    table.replica_start[i] += table.replica_start[i - 1];
  }
  std::vector<int32_t> next(table.replica_start.begin(), table.replica_start.end() - 1);
  table.slot_ids.resize(static_cast<size_t>(table.replica_start.back()));
  for (size_t slot = 0; slot < placement.slot_to_expert.size(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    if (expert == kUnusedSlot) continue;
    int32_t& position = next[static_cast<size_t>(expert)];
    table.slot_ids[static_cast<size_t>(position++)] = static_cast<int32_t>(slot);
  }
  return table;
}

Result<Placement> mask_ranks(Placement placement, std::span<const int> dead_ranks) {
  const int count = placement.slots_per_rank();
  for (int rank : dead_ranks) {
    if (rank < 0 || rank >= placement.ep_size) {
      return invalid_input(fmt::format("dead ranks: expected ranks from 0 to {}, found {}",
                                       placement.ep_size - 1, rank));
    }
    std::fill_n(placement.slot_to_expert.begin() + rank * count, count, kUnusedSlot);
  }
  // Masking can only lose experts: ids and counts are as valid as before.
  const Status placed = check_every_expert_placed(placement);
  if (!placed.ok()) return placed.at("without the dead ranks");
  return placement;
}

Result<Placement> linear_placement(int num_experts, int ep_size) {
  if (num_experts > 0 && ep_size > 0 && num_experts % ep_size != 0) {
    return invalid_input(
        fmt::format("{} experts cannot be shared equally by {} ranks; give a load balancer "
                    "configuration with num_slots: {} (some experts then have two replicas)",
                    num_experts, ep_size, round_up(num_experts, ep_size)));
  }
  return default_placement(num_experts, ep_size, num_experts);
}

Result<Placement> default_placement(int num_experts, int ep_size, int num_slots) {
  WIDEEP_TRY(check_slot_counts(num_experts, ep_size, num_slots));
  Placement placement{num_experts, ep_size, {}};
  placement.slot_to_expert.reserve(static_cast<size_t>(num_slots));
  for (int64_t rank = 0; rank < ep_size; ++rank) {
    // 64 bits: rank · num_experts of the largest sizes exceeds 32.
    const int64_t first = rank * num_experts / ep_size;
    for (int64_t i = 0; i < num_slots / ep_size; ++i) {
      placement.slot_to_expert.push_back(static_cast<int32_t>((first + i) % num_experts));
    }
  }
  return placement;
}

}  // namespace wideep::balance
