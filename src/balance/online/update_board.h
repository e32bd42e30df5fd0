// SPDX-License-Identifier: Apache-2.0
//
// The board of a group on one node, in anonymous shared memory that is made before the ranks are
// forked: the balancer posts its plans for all ranks of the node to read, and every rank publishes
// its counters there.
//
// Everything has one writer: rank 0's balancer thread writes plans, each rank's updater its
// counters. A layer's plan is written only while no rank has an update of the layer under way, so
// readers need no lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "base/shared_bytes.h"
#include "wideep/status.h"

namespace wideep::online {

// Counters of a rank's updater since the start.
struct UpdaterCounters {
  std::atomic<int64_t> heartbeat_ns{0};    // time of its last look for work (base::wall_ns)
  std::atomic<int64_t> copied_experts{0};  // verified
  std::atomic<int64_t> copied_bytes{0};
  std::atomic<int64_t> copy_ns{0};
  std::atomic<int64_t> cpu_ns{0};         // processor time of its thread: all that it does
  std::atomic<int64_t> hash_failures{0};  // copies whose hash was not the pool's
  // priority_lender.h:
  std::atomic<int64_t> lent_copies{0};    // of copied_experts: with normal priority, being late
  std::atomic<int64_t> refused_loans{0};  // the system does not let it raise a thread's priority
  std::atomic<int64_t> lender_cpu_ns{0};
};

// Counters of the group's balancer since the start.
struct BalancerCounters {
  std::atomic<int64_t> heartbeat_ns{0};
  std::atomic<int64_t> last_plan_ns{0};  // 0: none yet
  std::atomic<int64_t> plans{0};         // layers planned
  std::atomic<int64_t> published{0};     // layers whose plan all ranks have switched to
  std::atomic<int64_t> cancelled{0};     // layers given up: copies failed, or no step fits
  std::atomic<int64_t> refused{0};       // plans that are no placement of the layer
  std::atomic<int64_t> moves{0};         // experts copied into slots, of published plans
  std::atomic<int64_t> bytes{0};         // copied for them
  // move_ledger.h:
  std::atomic<int64_t> expected_ns{0}, saved_ns{0}, lost_ns{0}, paid_ns{0};
  std::atomic<bool> rests{false};
};

struct BoardShape {
  int num_ranks = 1;
  int num_layers = 0;  // MoE layers
  int num_slots = 0;   // of a layer, over all ranks
  // Ranks r, r + owners, … have the same slots, and each holds the next of num_slices slices of its
  // experts. 0: num_ranks.
  int num_owners = 0;
  int num_slices = 1;

  int owners() const { return num_owners == 0 ? num_ranks : num_owners; }
};

class UpdateBoard {
 public:
  // min_bytes: more memory than the shape needs, for reshape(). Errors (failed): the kernel
  // refuses the memory.
  static Result<std::unique_ptr<UpdateBoard>> create(
      const BoardShape& shape, const base::MakeSharedBytes& make = base::SharedBytes::create,
      size_t min_bytes = 0);
  static size_t bytes_for(const BoardShape& shape);

  // For a group with other members. All of its processes must use the same shape, of a board that
  // is as it was at first (clear()). REQUIRES: the memory suffices.
  void reshape(const BoardShape& shape);
  // REQUIRES: no process uses it, but to read counters.
  void clear();

  const BoardShape& shape() const { return shape_; }

  // ---- who reads counters while groups come and go ----

  // Counters are of one group where this is the same, and even, before and after they are read.
  // Odd: clear() is under way.
  uint32_t group() const;
  // The ranks that have counters, whatever shape this process knows.
  int num_ranks() const;

  // ---- the balancer ----

  // slot_to_expert, shares: [num_slots]; shares: of the expert's tokens, empty for equal ones.
  // REQUIRES: the layer's plan before has ended on all ranks.
  void post(int layer, std::span<const int32_t> slot_to_expert, std::span<const double> shares);

  // ---- updaters ----

  // Plans posted for the layer so far.
  uint32_t generation(int layer) const;
  std::span<const int32_t> slot_to_expert(int layer) const;
  std::span<const double> shares(int layer) const;  // empty for equal ones

  uint32_t num_posts() const;
  // Returns when num_posts() is not `seen`, when wake() is called, or after `at_most`.
  void wait_for_post(uint32_t seen, std::chrono::milliseconds at_most) const;
  void wake() const;

  UpdaterCounters& updater(int rank) const;
  BalancerCounters& balancer() const;

 private:
  struct Header;
  struct Layer;

  explicit UpdateBoard(const BoardShape& shape);
  Header& header() const;
  Layer& layer_at(int layer) const;
  int32_t* slots_of(int layer) const;
  double* shares_of(int layer) const;

  BoardShape shape_;
  size_t layers_offset_;
  size_t layer_bytes_;
  base::SharedBytes bytes_;
};

}  // namespace wideep::online
