// SPDX-License-Identifier: Apache-2.0
//
// New slots for experts that lost their last replica: moves without which the placement is not
// valid. One move for each, which is the fewest possible; the heaviest expert first.
//
// A lost expert takes a slot that is free, or whose expert has other replicas. Of all these it
// takes the one with which the hottest affected rank has the least load, with equal shares.
// Affected ranks are the slot's own rank and those that hold other replicas of the replaced expert,
// whose load grows.
//
// Thread safety: none. Deterministic. Allocates in the constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

class Rehomer {
 public:
  explicit Rehomer(const PlanShape& shape);  // no dead ranks

  // Returns the number of moves. load: [E]. REQUIRES: the placement is valid except that experts
  // may have no slot, and it uses usable slots only.
  int run(std::span<const double> load, Placement* placement);

 private:
  // The two hottest ranks that hold the expert.
  struct Holders {
    int hottest = -1;
    double max = 0.0, second = 0.0;
    void add(int rank, double load);
    double max_but(int rank) const { return rank == hottest ? second : max; }
  };

  void count_replicas(const Placement& placement);
  void list_lost(std::span<const double> load);
  void weigh(std::span<const double> load, const Placement& placement);
  int best_slot(std::span<const double> load, const Placement& placement, int32_t lost) const;
  double hottest_after(std::span<const double> load, int32_t present, int rank,
                       double arriving) const;

  PlanShape shape_;
  std::vector<int> replicas_;      // [E]
  std::vector<int32_t> lost_;      // experts without a slot
  std::vector<double> rank_load_;  // [R]
  std::vector<Holders> holders_;   // [E]
};

}  // namespace wideep::balance
