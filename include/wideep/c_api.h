/* SPDX-License-Identifier: Apache-2.0
 *
 * wideep for C, and for every language that can call C: the expert balancer. Link with -lwideep.
 *
 * Every function that can fail returns a status: WIDEEP_OK, or WIDEEP_INVALID_INPUT when the
 * arguments are wrong, or WIDEEP_FAILED. wideep_last_error() then says what was wrong in one line,
 * and outputs are untouched. Arrays are the caller's, dense and row-major; their shapes are in
 * brackets, with E = num_experts, R = ep_size, S = num_slots.
 *
 * Thread safety: a planner serves one thread at a time; everything else may be called from any.
 *
 *   wideep_plan_shape shape = {.num_experts = 256, .ep_size = 32, .num_slots = 288};
 *   wideep_planner* planner;
 *   if (wideep_planner_create("wideep", &shape, WIDEEP_SPLIT_EQUAL, &planner) != WIDEEP_OK)
 *     puts(wideep_last_error());
 *   wideep_planner_plan(planner, 58, load, slot_to_expert, NULL);
 */
#ifndef WIDEEP_C_API_H_
#define WIDEEP_C_API_H_

#include <stdint.h>

/* NOLINTBEGIN(readability-identifier-naming): C has no namespaces */

#if defined(__GNUC__)
#define WIDEEP_EXPORT __attribute__((visibility("default")))
#else
#define WIDEEP_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  WIDEEP_OK = 0,
  WIDEEP_FAILED = 1,
  WIDEEP_INVALID_INPUT = 2,
};

/* How an engine divides an expert's tokens among its replicas. */
enum {
  WIDEEP_SPLIT_EQUAL = 0,    /* tokens / replicas each */
  WIDEEP_SPLIT_WEIGHTED = 1, /* by the shares of the plan */
};

/* Every rank has S / R slots: slot s is on rank s / (S / R). Node n of N owns the ranks from n·R/N
 * on, group g of G the experts from g·E/G on. 0 nodes or groups means 1. */
typedef struct wideep_plan_shape {
  int32_t num_experts; /* E */
  int32_t ep_size;     /* R */
  int32_t num_slots;   /* S, a multiple of R, at least E */
  int32_t num_nodes;   /* N, divides R */
  int32_t num_groups;  /* G, divides E; with several nodes a multiple of N: groups stay on a node */
} wideep_plan_shape;

typedef struct wideep_planner wideep_planner;

/* "0.1.0" */
WIDEEP_EXPORT const char* wideep_version(void);

/* Why the calling thread's last failing call failed; "" before the first. Valid until its next. */
WIDEEP_EXPORT const char* wideep_last_error(void);

/* name: "wideep", "trt" or "deepseek". */
WIDEEP_EXPORT int wideep_planner_create(const char* name, const wideep_plan_shape* shape, int split,
                                        wideep_planner** planner);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_planner_destroy(wideep_planner* planner);

/* load: [num_layers, E] tokens, finite and not negative.
 * slot_to_expert: [num_layers, S] out. shares: [num_layers, S] out, the part of its expert's tokens
 * that each slot receives; NULL when not wanted. */
WIDEEP_EXPORT int wideep_planner_plan(wideep_planner* planner, int32_t num_layers,
                                      const double* load, int32_t* slot_to_expert, double* shares);

/* The best shares for a placement that stays as it is. slot_to_expert: [S]; load: [E]; shares: [S]
 * out. */
WIDEEP_EXPORT int wideep_resplit(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                                 const double* load, double* shares);

/* max rank load / mean - 1 of slot_to_expert [S] with shares [S] (NULL: equal) under load [E]. */
WIDEEP_EXPORT int wideep_imbalance(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                                   const double* shares, const double* load, double* imbalance);

/* No placement of this shape has a smaller imbalance under load [E]. */
WIDEEP_EXPORT int wideep_imbalance_lower_bound(const wideep_plan_shape* shape, const double* load,
                                               int split, double* bound);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif /* WIDEEP_C_API_H_ */
