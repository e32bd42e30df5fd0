// SPDX-License-Identifier: Apache-2.0
//
// Statistics on the device: how many tokens of this rank were routed to every expert and to every
// slot, added up over the calls of iterations, and handed to the balancer without loss and without
// a wait (online/load_mailbox.h does it on a CPU).
//
//   count           a call's tokens; on the rank's stream, once their slots are chosen
//   end iteration   hands the sums over if the balancer has taken the last ones; on the same stream
//   take            copies what was handed over and clears it; on the balancer's stream
//
// There are two sets of sums. The rank's stream adds to one of them. At the end of an iteration, if
// the other one is empty, the two change places and `full` is raised; a late balancer gets the sums
// of several iterations at once. Neither stream waits for the other, and the host for none.
//
// Thread safety: kernels; count and end iteration on one stream, take on any one other.
#pragma once

#include "cuda/protocol.h"

namespace wideep::cuda {

struct LoadState {
  uint32_t filling;  // the set that the rank's stream adds to; it changes only while full is 0
  uint32_t full;     // 1: the other set has been handed over and not been taken yet
  uint64_t iterations_done;
  uint64_t first_iteration[2];  // of each set
  uint64_t num_iterations[2];   // that have ended
};

// The sums of a rank, on its device, zero at the start.
struct LoadSums {
  int32_t num_layers = 1;
  int32_t num_columns = 0;     // experts, then slots of all ranks
  uint64_t* tokens = nullptr;  // [2, num_layers, num_columns]
  LoadState* state = nullptr;

  WIDEEP_HOST_DEVICE int64_t num_sums() const { return int64_t{num_layers} * num_columns; }
  WIDEEP_HOST_DEVICE uint64_t* set(uint32_t index) const { return tokens + index * num_sums(); }
};

struct CountTokens {
  Exchange x;
  LoadSums sums;
  const int32_t* num_tokens = nullptr;
  const int32_t* experts = nullptr;  // [num_tokens, top_k]
  const int32_t* slots = nullptr;    // the same
  int32_t layer = 0;                 // a row of the sums

  // Bytes of shared memory that the block needs: there is one.
  static size_t shared_bytes(const ExchangeShape& shape) {
    return kControlBytes +
           static_cast<size_t>(shape.num_experts + shape.num_slots()) * sizeof(uint32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    if (begin_call(lane, x) == 0) return;
    const ExchangeShape& shape = x.layout.shape();
    auto* counts = shared_after_control<uint32_t>(lane);
    for (int c = lane.thread(); c < sums.num_columns; c += lane.num_threads()) {
      lane.store(counts + c, 0u);
    }
    lane.sync();
    const int n = lane.load(num_tokens);
    const int64_t num_entries = n <= shape.max_tokens ? int64_t{n} * shape.top_k : 0;
    for (int64_t i = lane.thread(); i < num_entries; i += lane.num_threads()) {
      count(lane, counts, lane.load(experts + i), shape.num_experts);
      count(lane, counts + shape.num_experts, lane.load(slots + i), shape.num_slots());
    }
    lane.sync();
    const uint32_t filling = lane.load(&sums.state->filling);
    uint64_t* row = sums.set(filling) + int64_t{layer} * sums.num_columns;
    for (int c = lane.thread(); c < sums.num_columns; c += lane.num_threads()) {
      const uint32_t tokens = lane.load(counts + c);
      if (tokens != 0) lane.store(row + c, lane.load(row + c) + tokens);
    }
  }

 private:
  template <typename Lane>
  WIDEEP_DEVICE static void count(Lane& lane, uint32_t* counts, int32_t id, int32_t num_ids) {
    if (static_cast<uint32_t>(id) < static_cast<uint32_t>(num_ids)) {
      lane.atomic_add(counts + id, 1u);
    }
  }
};

// One thread has something to do.
struct EndIteration {
  LoadSums sums;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    if (lane.block() != 0 || lane.thread() != 0) return;
    LoadState* state = sums.state;
    const uint32_t filling = lane.load(&state->filling);
    const uint64_t number = lane.load(&state->iterations_done);
    const uint64_t ended = lane.load(&state->num_iterations[filling]);
    if (ended == 0) lane.store(&state->first_iteration[filling], number);
    lane.store(&state->num_iterations[filling], ended + 1);
    lane.store(&state->iterations_done, number + 1);
    // Pairs with the release of take: the other set is zero before this stream adds to it.
    if (lane.load_acquire(&state->full) != 0) return;
    lane.store(&state->filling, 1 - filling);
    lane.store_release(&state->full, 1u);
  }
};

// What take gives; without new sums it has no iterations and nothing else is written.
struct TakenLoads {
  uint64_t first_iteration;
  uint64_t num_iterations;
};

// One block.
struct TakeLoads {
  LoadSums sums;
  TakenLoads* taken = nullptr;
  uint64_t* tokens = nullptr;  // [num_layers, num_columns]

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    auto* control = lane.template shared<uint32_t>();
    LoadState* state = sums.state;
    if (lane.thread() == 0) lane.store(control, lane.load_acquire(&state->full));
    lane.sync();
    if (lane.load(control) == 0) {
      if (lane.thread() == 0) lane.store(&taken->num_iterations, uint64_t{0});
      return;
    }
    const uint32_t full = 1 - lane.load(&state->filling);
    uint64_t* from = sums.set(full);
    for (int64_t i = lane.thread(); i < sums.num_sums(); i += lane.num_threads()) {
      lane.store(tokens + i, lane.load(from + i));
      lane.store(from + i, uint64_t{0});
    }
    lane.sync();
    if (lane.thread() != 0) return;
    lane.store(&taken->first_iteration, lane.load(&state->first_iteration[full]));
    lane.store(&taken->num_iterations, lane.load(&state->num_iterations[full]));
    lane.store(&state->num_iterations[full], uint64_t{0});
    lane.store_release(&state->full, 0u);
  }
};

}  // namespace wideep::cuda
