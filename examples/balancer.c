/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans where the experts of one layer go, then follows a drift of the load with new shares alone.
 *
 *   cc examples/balancer.c -Iinclude -Lbuild -lwideep -o balancer
 */
#include <stdio.h>
#include <wideep/c_api.h>

enum { kExperts = 16, kRanks = 4, kSlots = 20 };

int main(void) {
  const wideep_plan_shape shape = {.num_experts = kExperts, .ep_size = kRanks, .num_slots = kSlots};
  double load[kExperts], shares[kSlots], imbalance, bound;
  int32_t slot_to_expert[kSlots];
  for (int e = 0; e < kExperts; ++e) load[e] = 100.0 / (1 + e);

  const wideep_planner_options options = {.split = WIDEEP_SPLIT_WEIGHTED};
  wideep_planner* planner;
  if (wideep_planner_create("wideep", &shape, &options, &planner) != WIDEEP_OK) {
    fprintf(stderr, "error: %s\n", wideep_last_error());
    return WIDEEP_INVALID_INPUT;
  }
  wideep_planner_plan(planner, 1, load, slot_to_expert, shares);
  wideep_planner_destroy(planner);
  wideep_imbalance(&shape, slot_to_expert, shares, load, &imbalance);
  wideep_imbalance_lower_bound(&shape, load, WIDEEP_SPLIT_WEIGHTED, &bound);
  printf("planned:         imbalance %.4f, proven lower bound %.4f\n", imbalance, bound);

  load[9] *= 4; /* the load drifts */
  wideep_imbalance(&shape, slot_to_expert, shares, load, &imbalance);
  printf("after the drift: imbalance %.4f\n", imbalance);
  wideep_resplit(&shape, slot_to_expert, load, shares);
  wideep_imbalance(&shape, slot_to_expert, shares, load, &imbalance);
  printf("with new shares: imbalance %.4f\n", imbalance);
  return WIDEEP_OK;
}
