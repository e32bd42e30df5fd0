// SPDX-License-Identifier: Apache-2.0
//
// Weighted split with fewer spare slots than it takes to connect all ranks (X = S - E < R - 1).
//
// Ranks that share an expert form components, and a component of m ranks needs m - 1 extra
// replicas. With them it can be balanced perfectly, whatever its experts weigh
// (placement_exact.h): it has m·K slots for m·(K - 1) + 1 experts. So only the components are to be
// chosen: R - X of them (joining two never makes the hotter one hotter), of m_c ranks with
// m_c·(K - 1) + 1 experts each, Σ m_c = R, such that the greatest load per rank of a component is
// least. That is a packing problem without replicas and shares, which simulated annealing over two
// moves solves well: two experts change places, or a component gives a rank and K - 1 experts to
// another one.
//
// Thread safety: one thread at a time per ComponentPlacer.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/placement_exact.h"
#include "wideep/balancer.h"

namespace wideep::balance {

// True if there are some extra replicas, too few to connect all ranks, and two slots a rank or
// more.
inline bool components_are_needed(const PlanShape& shape) {
  const int extras = shape.num_slots - shape.num_experts;
  return extras > 0 && extras < shape.ep_size - 1 && shape.slots_per_rank() > 1;
}

class ComponentPlacer {
 public:
  // REQUIRES: components_are_needed(shape).
  explicit ComponentPlacer(const PlanShape& shape);

  // load: [E], finite and ≥ 0. Writes a placement and shares that balance each component perfectly.
  // Deterministic. Keeps its work space. to_beat: the imbalance of a plan that there is already. If
  // a short search comes nowhere near it, a long one would not beat it: false, and no plan.
  bool place(std::span<const double> load, LayerPlan* plan,
             double to_beat = std::numeric_limits<double>::infinity());

 private:
  struct Component {
    std::vector<int32_t> experts;  // ranks·(K - 1) + 1
    int ranks = 1;
    double load = 0.0;
    double cost = 0.0;
  };

  void set_load(std::span<const double> load);
  void start();
  double search(int64_t tries);
  void refresh();
  double hottest() const;
  double cost(double load, int ranks) const;
  bool accept(double change);
  size_t draw(size_t below);
  size_t draw_hot();
  void try_swap(Component& hot, Component& other);
  void try_rank(Component& hot, Component& other);
  void write(std::span<const double> load, LayerPlan* plan);
  void write(const Component& component, std::span<const double> load, size_t slot,
             LayerPlan* plan);

  PlanShape shape_;
  size_t per_rank_;
  std::vector<double> load_;  // [E] mean rank load 1
  std::vector<int32_t> by_load_;
  std::vector<Component> components_, best_;
  ExactPlacer exact_;              // of one component
  std::vector<double> part_load_;  // of its experts
  LayerPlan part_;
  double unit_ = 1.0, sum_ = 0.0;  // the hottest component, and the sum of all costs
  double temperature_ = 0.0;
  uint64_t random_ = 0;
};

}  // namespace wideep::balance
