// SPDX-License-Identifier: Apache-2.0
//
// What the loss of a rank would mean for a run, before it happens (docs/faults.md).
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>

#include "run/run_plan.h"

namespace wideep::run {

struct RecoveryForecast {
  bool is_elastic = false;  // the others go on; else all wait until the rank has returned
  bool has_pool = false;    // experts come from the host pool; else from the checkpoint
  int num_ranks = 0;
  // Of the layer and the rank for which they are most: experts that no other rank has.
  int max_lost_experts = 0;
  int num_experts = 0;
  // Of each rank, before and after the loss of any one.
  int slots_before = 0, slots_after = 0;
  // Bytes of experts in slots, of all ranks together.
  uint64_t slot_bytes_before = 0, slot_bytes_after = 0;
  uint64_t lost_bytes = 0;  // to bring into slots: of all layers, for the worst rank
  // What it would cost in memory that no expert has to be read from the checkpoint: a host pool.
  uint64_t pool_bytes = 0;
  // Slots per layer with which every expert is on two ranks: none has to be brought.
  int slots_without_loss = 0;
  uint64_t replica_bytes = 0;  // that these add

  // Of a run with keepers on several nodes (RunOptions::kept_nodes), when the largest one that does
  // not serve is lost.
  int num_nodes = 1;
  int ranks_after_node = 0;
  int slots_after_node = 0;  // of each rank
  uint64_t slot_bytes_after_node = 0;
  int max_experts_lost_with_node = 0;  // of a layer
};

// experts: of the plan's model.
RecoveryForecast forecast_recovery(const RunPlan& plan, const weights::ExpertShape& experts);

}  // namespace wideep::run
