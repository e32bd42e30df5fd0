// SPDX-License-Identifier: Apache-2.0
//
// Plans the placement of one layer's experts, then adapts it to new load: with new shares, and if
// these are not enough, with a few moves. In CMake: target_link_libraries(... wideep::balancer).
#include <wideep/balancer.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace wideep::balance;

template <typename T>
T value_or_exit(wideep::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "error: %s\n", result.status().message().c_str());
  std::exit(result.status().exit_code());
}

int main() {
  const PlanShape shape{.num_experts = 16, .ep_size = 4, .num_slots = 20};
  auto planner = value_or_exit(make_planner("wideep", shape, {.split = Split::kWeighted}));
  auto repairer =
      value_or_exit(make_repairer(shape, {.split = Split::kWeighted, .tolerance = 0.01}));
  std::vector<double> load;
  for (int expert = 0; expert < shape.num_experts; ++expert) load.push_back(100.0 / (1 + expert));

  LayerPlan plan;
  planner->plan(load, &plan);
  load[9] *= 4;  // the load drifts, and then some more
  Resplitter resplitter(plan.placement);
  std::printf("new shares: max rank load %.2f\n", resplitter.resplit(load, plan.shares));
  load[9] *= 4;
  const RepairReport report = repairer->repair(load, plan, &plan);
  std::printf("imbalance %.4f, with new shares %.4f, after %d moves %.4f\n",
              report.imbalance_before, report.imbalance_resplit, report.moves,
              report.imbalance_after);
}
