// SPDX-License-Identifier: Apache-2.0
//
// Repair for engines that split an expert's load equally among its replicas.
//
// The placement is written to the planner's board (search/board.h), and its ranks above the
// tolerance swap experts with cold ones: two moves each. If swaps end above the tolerance, the
// replica counts no longer fit the load: a slot whose expert can spare it becomes a replica of the
// heaviest expert of the hottest rank (one move), and the swaps go on. Free slots, for example
// those of a rank that is back, come first: they take the heaviest replicas, on the coldest ranks.
// If the tolerance is out of reach, moves towards it are wasted; so a second run aims at the
// imbalance that the first one reached, and is kept if it takes fewer moves.
//
// Thread safety: none. Deterministic. Allocates on the first run only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/search/search.h"
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
