// SPDX-License-Identifier: Apache-2.0
//
// Repair for engines that split an expert's load equally among its replicas.
//
// The placement is put on the planner's board (search/board.h) as it is, and its ranks above the
// tolerance swap with cold ones: two moves for each. Where swaps end above the tolerance, the
// replica counts no longer fit the load: a slot of an expert that can spare it becomes a replica of
// the heaviest on the hottest rank (one move), and the swaps go on. Free slots, those of a rank
// that is back for example, come first: they take the heaviest replicas, on the coldest ranks. A
// tolerance that stays out of reach costs moves for nothing, so then what was reached is asked for
// from the start.
//
// Thread safety: none. Deterministic. Allocates on the first run only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/search/search.h"
#include "wideep/balancer.h"

namespace wideep::balance {

class EqualRepair {
 public:
  explicit EqualRepair(const PlanShape& shape);

  // Writes a placement within max_moves of `from` whose maximum rank load is lower, or `from`.
  // Loads are float32 here: within 1e-5 of the tolerance it may stop early or late.
  void run(std::span<const double> load, const Placement& from, double tolerance, int max_moves,
           Placement* to);

 private:
  void approach(const Placement& from, float tolerance, int max_moves);
  bool swap(int budget);
  bool fill_free_slots(int budget);
  int free_slot_of_coldest_rank() const;
  int32_t heaviest_expert_missing_on(int rank) const;
  bool add_replica(int budget);
  bool keep_if_better();
  void fill_board(const Placement& placement);
  void read_board(Placement* placement) const;
  float imbalance() const;
  int hottest_rank() const;
  int32_t heaviest_expert(int rank) const;
  int slot_to_spare(int32_t expert) const;

  search::Board board_;
  const search::Search& search_;
  search::Goal goal_;

  Placement best_;
  float best_imbalance_ = 0.0f;
  Placement trial_;
};

}  // namespace wideep::balance
