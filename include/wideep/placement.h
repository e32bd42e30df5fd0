// SPDX-License-Identifier: Apache-2.0
//
// Where a layer's experts are: the placement (slot → expert) and its inverse, the routing table
// (expert → slots).
//
// A rank owns a contiguous run of slots: global slot s is local slot s % slots_per_rank of rank
// s / slots_per_rank. Every expert has at least one slot; an expert with r slots has r replicas.
// A slot may be unused: all slots of a dead rank are, and the last ones of a rank with less memory.
// Two replicas of one expert may share a rank (TRT's planner does that too when it has no better
// place).
//
// Thread safety: plain values; all functions are pure.
//
//   WIDEEP_TRY_ASSIGN(Placement placement, default_placement(256, 36, 288));
//   RoutingTable table = make_routing_table(placement);
//   int rank = placement.rank_of_slot(table.replicas(7)[0]);
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "wideep/status.h"

namespace wideep::balance {

// In Placement::slot_to_expert: the slot holds nothing.
inline constexpr int32_t kUnusedSlot = -1;

// The placement of one MoE layer. As made by wideep's readers and planners it is valid (see
// check_placement); code that fills the fields itself calls check_placement before using it.
struct Placement {
  int num_experts = 0;                  // E
  int ep_size = 1;                      // R, the number of ranks
  std::vector<int32_t> slot_to_expert;  // [S], S ≥ E and S % R == 0; in [0, E) or kUnusedSlot

  int num_slots() const { return static_cast<int>(slot_to_expert.size()); }
  int slots_per_rank() const { return num_slots() / ep_size; }
  int rank_of_slot(int slot) const { return slot / slots_per_rank(); }
  // The experts of a rank's slots, in slot order; [slots_per_rank].
  std::span<const int32_t> experts_of_rank(int rank) const;
  int num_ranks_in_use() const;  // those that hold an expert

  bool operator==(const Placement&) const = default;
};

// How the shares are chosen by which an expert's tokens are divided among its replicas.
enum class ShareUpdate {
  kIteration,  // computed every iteration from its own tokens, which all ranks count first
  kWindow,     // those of the placement, else equal shares: no wait before dispatch
};

// The policy that chooses which experts move while the model serves.
enum class UpdatePolicyKind {
  kWideep,  // shares first, then the fewest moves that pay for themselves
  kTrt,     // a plan from scratch each time, as TensorRT-LLM's; for comparison
};

// The placements of all MoE layers of a model: the content of moe_load_balancer.yaml.
struct ModelPlacement {
  int num_slots = 0;
  int layer_updates_per_iter = 0;   // 0: the placement never changes; > 0: online balancing
  std::map<int, Placement> layers;  // by the model's layer index; all share E, S and R
  ShareUpdate share_update = ShareUpdate::kIteration;
  // Ranks of a node share out the rows of an iteration evenly, whatever the placement (G11).
  bool exact_load = false;
  // Of online balancing only:
  UpdatePolicyKind update_policy = UpdatePolicyKind::kWideep;
  int spare_slots = 0;  // records of a rank for experts on their way; 0: slots per rank × min(k, 2)
  bool rests_when_unpaid = true;  // makes no moves for a while when the last ones have not paid

  bool operator==(const ModelPlacement&) const = default;
};

// Expert → its replicas. [E + 1] offsets into the global ids of the slots in use, ascending within
// an expert.
struct RoutingTable {
  std::vector<int32_t> replica_start;  // [E + 1]
  std::vector<int32_t> slot_ids;       // [S − unused slots]

  int num_experts() const { return static_cast<int>(replica_start.size()) - 1; }
  int num_replicas(int expert) const;
  std::span<const int32_t> replicas(int expert) const;

  bool operator==(const RoutingTable&) const = default;
};

// The most slots of a layer. Far more than any model needs; it bounds memory and files.
inline constexpr int kMaxSlots = 1 << 20;

// Checks that num_slots slots on ep_size ranks can hold num_experts experts: all positive, S ≥ E, R
// ≤ S, S % R == 0 and S ≤ kMaxSlots. Errors (invalid input) name the number to change and a valid
// value.
Status check_slot_counts(int num_experts, int ep_size, int num_slots);

// Checks the slot counts, that every id is in [0, E) or kUnusedSlot, and that every expert has a
// slot. Errors (invalid input) name the slot or the expert.
Status check_placement(const Placement& placement);

// REQUIRES: check_placement(placement).ok().
RoutingTable make_routing_table(const Placement& placement);

// The placement without dead ranks: their slots become unused, nothing moves. TRT's
// reconfigureMaskOnly. REQUIRES: check_placement(placement).ok(). Errors (invalid input): a rank
// that does not exist; an expert that would lose its last replica (a Repairer, wideep/balancer.h,
// gives it a new one).
Result<Placement> mask_ranks(Placement placement, std::span<const int> dead_ranks);

// Expert e on slot e: no redundancy, S = E.
// Errors (invalid input): E % ep_size != 0, with the smallest num_slots that would work (the ranks
// then hold unequal numbers of experts only through replicas, which default_placement gives).
Result<Placement> linear_placement(int num_experts, int ep_size);

// What TRT assumes when initial_global_assignments is absent: local slot i of rank r holds expert
// (r·E/R + i) % E. With S = E this is the linear placement.
// Errors (invalid input): as check_slot_counts.
Result<Placement> default_placement(int num_experts, int ep_size, int num_slots);

}  // namespace wideep::balance
