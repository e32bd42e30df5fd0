/* SPDX-License-Identifier: Apache-2.0
 *
 * wideep for C, and for every language that can call C: the expert balancer, and dispatch and
 * combine on CPUs and on GPUs. Link with -lwideep.
 *
 * Every function that can fail returns a status: WIDEEP_OK, or WIDEEP_INVALID_INPUT when the
 * arguments are wrong, or WIDEEP_FAILED. After an error wideep_last_error() returns one line that
 * explains it, and outputs are unchanged. The caller owns all arrays; they are dense and row-major,
 * with their shapes in brackets: E = num_experts, R = ep_size, S = num_slots.
 *
 * Structs: fill in what you need and zero the rest, as designated initializers do; 0 stands for the
 * default. New members will replace a part of `reserved`, so sizes stay the same. A library refuses
 * a struct whose `reserved` is not 0: it sets a member that this version does not have.
 *
 * Thread safety: one thread at a time per handle (planner, resplitter, repairers, communicators);
 * all other functions, those of groups included, may be called from any thread. Handles keep their
 * work space between calls; wideep_resplitter_run never allocates.
 *
 *   wideep_plan_shape shape = {.num_experts = 256, .ep_size = 32, .num_slots = 288};
 *   wideep_planner* planner;
 *   if (wideep_planner_create("wideep", &shape, NULL, &planner) != WIDEEP_OK)
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
  const int32_t* rank_slots; /* [R] usable slots of each rank: its first ones; 0 for a dead rank.
                                NULL: all. Read when a handle is made, not kept */
  int64_t reserved[4];
} wideep_plan_shape;

typedef struct wideep_planner_options {
  int32_t split;      /* WIDEEP_SPLIT_*: equal, if not set */
  int32_t max_rounds; /* planner wideep: rounds of swaps per layer; 0: 100 */
  double tolerance;   /* planner wideep: the imbalance at which the search stops; 0: 0.001 */
  int64_t reserved[6];
} wideep_planner_options;

typedef struct wideep_repair_options {
  int32_t split;            /* WIDEEP_SPLIT_*: equal, if not set */
  int32_t max_moves;        /* per layer; 0: no limit (wideep_resplit moves none) */
  double tolerance;         /* the imbalance at which to stop; 0: 0.01 */
  int64_t bytes_per_expert; /* weights of one expert of the layer, for the report */
  int64_t reserved[5];
} wideep_repair_options;

/* Imbalance under the new load, and the cost of the repair of one layer. */
typedef struct wideep_repair_report {
  double imbalance_before;  /* the old placement with its old shares */
  double imbalance_resplit; /* ... with the best shares; equal split: as before */
  double imbalance_after;   /* not above imbalance_resplit */
  int64_t bytes;            /* moves * bytes_per_expert */
  int32_t moves;            /* experts copied to a rank that did not hold them */
  int32_t forced_moves;     /* of experts that lost their last usable slot */
  int32_t reserved[6];
} wideep_repair_report;

typedef struct wideep_planner wideep_planner;
typedef struct wideep_resplitter wideep_resplitter;
typedef struct wideep_repairer wideep_repairer;

/* "0.3.0" */
WIDEEP_EXPORT const char* wideep_version(void);

/* The error of the calling thread's last failing call; "" before the first. Valid until the next
 * failing call of that thread. */
WIDEEP_EXPORT const char* wideep_last_error(void);

/* name: "wideep", "trt", "deepseek" or "cooccurrence". options: NULL for the defaults. */
WIDEEP_EXPORT int wideep_planner_create(const char* name, const wideep_plan_shape* shape,
                                        const wideep_planner_options* options,
                                        wideep_planner** planner);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_planner_destroy(wideep_planner* planner);

/* load: [num_layers, E] tokens, finite and not negative.
 * slot_to_expert: [num_layers, S] out, -1 for a slot that is not in use. shares: [num_layers, S]
 * out, the part of its expert's tokens that each slot receives; NULL when not wanted. */
WIDEEP_EXPORT int wideep_planner_plan(wideep_planner* planner, int32_t num_layers,
                                      const double* load, int32_t* slot_to_expert, double* shares);

/* The same for planner "cooccurrence", which needs the pairs of experts that tokens choose
 * together. pair_counts: [num_layers, E, E] tokens that chose both experts, not negative,
 * symmetric; 0 on the diagonal. */
WIDEEP_EXPORT int wideep_planner_plan_pairs(wideep_planner* planner, int32_t num_layers,
                                            const double* load, const int64_t* pair_counts,
                                            int32_t* slot_to_expert, double* shares);

/* The best shares for a placement that stays as it is. slot_to_expert: [S]; load: [E]; shares: [S]
 * out. */
WIDEEP_EXPORT int wideep_resplit(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                                 const double* load, double* shares);

/* wideep_resplit for many loads: keeps the structure of one placement. slot_to_expert: [S]. */
WIDEEP_EXPORT int wideep_resplitter_create(const wideep_plan_shape* shape,
                                           const int32_t* slot_to_expert,
                                           wideep_resplitter** resplitter);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_resplitter_destroy(wideep_resplitter* resplitter);
/* Changes to another placement of the same shape. */
WIDEEP_EXPORT int wideep_resplitter_reset(wideep_resplitter* resplitter,
                                          const int32_t* slot_to_expert);
/* load: [E]; shares: [S] out; max_load: out, the largest rank load under these shares, which is the
 * least possible; NULL when not wanted. */
WIDEEP_EXPORT int wideep_resplitter_run(wideep_resplitter* resplitter, const double* load,
                                        double* shares, double* max_load);
/* Of the last run: the ranks whose experts have no replica elsewhere and whose mean load is the
 * maximum, ascending; [num_ranks], valid until the resplitter's next call. 0 ranks: the load is
 * perfectly balanced. To get below max_load, an expert of these ranks has to move: see repair. */
WIDEEP_EXPORT int wideep_resplitter_bottleneck(const wideep_resplitter* resplitter,
                                               const int32_t** ranks, int32_t* num_ranks);

/* Repair: brings the balance back after the load has changed, with few moves of experts. With a
 * weighted split it changes the shares first. options: NULL for the defaults. */
WIDEEP_EXPORT int wideep_repairer_create(const wideep_plan_shape* shape,
                                         const wideep_repair_options* options,
                                         wideep_repairer** repairer);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_repairer_destroy(wideep_repairer* repairer);

/* load: [num_layers, E]. from: [num_layers, S], the placement now, by any planner; from_shares:
 * [num_layers, S], NULL: equal. to, to_shares: [num_layers, S] out; may be the arrays of `from`;
 * replicas that stay keep their slots. `from` may use slots that rank_slots does not allow: these
 * replicas are lost, and experts without another replica move first. to_shares and reports
 * [num_layers] are NULL when not wanted.
 */
WIDEEP_EXPORT int wideep_repairer_repair(wideep_repairer* repairer, int32_t num_layers,
                                         const double* load, const int32_t* from,
                                         const double* from_shares, int32_t* to, double* to_shares,
                                         wideep_repair_report* reports);

/* The online balancer: windows of load in, few moves out (wideep/online_repairer.h,
 * docs/online.md). It remembers the loads of earlier steps and the placement of all layers. */
enum {
  WIDEEP_SHARES_OF_ITERATION =
      0,                       /* the engine computes them in each iteration: wideep_resplitter */
  WIDEEP_SHARES_OF_UPDATE = 1, /* it takes them from the repairer */
};

typedef struct wideep_online_options {
  int32_t split;           /* WIDEEP_SPLIT_*: equal, if not set */
  int32_t share_update;    /* WIDEEP_SHARES_*, with a weighted split */
  int32_t max_moves;       /* of a layer in one step; 0: no limit */
  int32_t num_samples;     /* of load that are remembered; 0: 32 */
  int64_t sample_tokens;   /* tokens that make a sample; 0: 2048. A step of more is one sample */
  int64_t horizon_tokens;  /* within which a move must pay; 0: 16,384, or 4,096 per rank above 8 */
  double rows_per_move;    /* its price: rows that a rank computes in the time of a copy; 0: 32 */
  double tolerance;        /* imbalance that needs no moves; 0: 0.01 equal, 0.003 weighted */
  double false_alarm_rate; /* of a balanced layer in one step; 0: 0.001 */
  double turn_ms;          /* planning time of one step, weighted split; 0: docs/online.md */
  int64_t reserved[5];
} wideep_online_options;

/* A slot that gets another expert: one copy of weights. */
typedef struct wideep_slot_move {
  int32_t layer;
  int32_t slot;
  int32_t expert;
  int32_t reserved;
} wideep_slot_move;

typedef struct wideep_online_repairer wideep_online_repairer;

/* top_k: experts per token. slot_to_expert: [num_layers, S] in service. options: NULL for the
 * defaults. */
WIDEEP_EXPORT int wideep_online_repairer_create(const wideep_plan_shape* shape, int32_t num_layers,
                                                int32_t top_k, const wideep_online_options* options,
                                                const int32_t* slot_to_expert,
                                                wideep_online_repairer** repairer);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_online_repairer_destroy(wideep_online_repairer* repairer);

/* Ends an iteration, or a window of iterations. counts: [num_layers, E] tokens of all ranks, >= 0.
 * busy: [num_layers] nonzero for layers whose copies are still under way, which get no moves; NULL:
 * none. moves: [num_moves] out, by layer, valid until the repairer's next call; they count as made
 * from then on. */
WIDEEP_EXPORT int wideep_online_repairer_step(wideep_online_repairer* repairer,
                                              const int64_t* counts, const uint8_t* busy,
                                              const wideep_slot_move** moves, int32_t* num_moves);

/* slot_to_expert: [num_layers, S] out, with all moves so far. shares: [num_layers, S] out, of each
 * layer's last update, equal ones before that; NULL when not wanted. */
WIDEEP_EXPORT int wideep_online_repairer_placement(const wideep_online_repairer* repairer,
                                                   int32_t* slot_to_expert, double* shares);
/* Where the engine did not make the moves of a layer: what it serves instead, [S]. */
WIDEEP_EXPORT int wideep_online_repairer_set_placement(wideep_online_repairer* repairer,
                                                       int32_t layer,
                                                       const int32_t* slot_to_expert);

/* max rank load / mean - 1, over the ranks in use, of slot_to_expert [S] with shares [S] (NULL:
 * equal) under load [E]. */
WIDEEP_EXPORT int wideep_imbalance(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                                   const double* shares, const double* load, double* imbalance);

/* A lower bound: no placement of this shape has a smaller imbalance under load [E]. */
WIDEEP_EXPORT int wideep_imbalance_lower_bound(const wideep_plan_shape* shape, const double* load,
                                               int split, double* bound);

/* Dispatch and combine between the ranks of one machine, which are processes or threads;
 * wideep/communicator.h explains the calls and their order. One process creates the group; then it
 * forks a process or starts a thread for each rank, which joins. Wrong arguments of a rank, and
 * waits longer than timeout_ms (WIDEEP_FAILED), end the group: every rank gets the first error. */
typedef struct wideep_group_options {
  int32_t num_ranks;
  int32_t slots_per_rank; /* slot s of the group is on rank s / slots_per_rank */
  int32_t top_k;          /* slots of each token */
  int32_t max_tokens;     /* of each rank in a dispatch */
  int64_t row_bytes;      /* of a dispatched row */
  int64_t result_bytes;   /* of the row that a slot returns */
  int64_t timeout_ms;     /* of every single wait; 0: 30000 */
  int64_t reserved[5];
} wideep_group_options;

/* A row received for a slot, and the place for its result; 16-byte aligned. */
typedef struct wideep_received_row {
  const void* row; /* [row_bytes]; 16-byte aligned, except rows of this rank's own tokens, which
                      are not copied */
  void* result;    /* [result_bytes] */
} wideep_received_row;

typedef struct wideep_group wideep_group;
typedef struct wideep_communicator wideep_communicator;

WIDEEP_EXPORT int wideep_group_create(const wideep_group_options* options, wideep_group** group);
/* NULL is allowed. Communicators may outlive it. */
WIDEEP_EXPORT void wideep_group_destroy(wideep_group* group);
/* For a supervisor of the ranks: every rank's call returns this message from now on. */
WIDEEP_EXPORT int wideep_group_fail(wideep_group* group, const char* message);

/* Waits for all ranks. A rank joins once. */
WIDEEP_EXPORT int wideep_communicator_join(wideep_group* group, int32_t rank,
                                           wideep_communicator** communicator);
/* NULL is allowed. */
WIDEEP_EXPORT void wideep_communicator_destroy(wideep_communicator* communicator);

/* rows: [num_tokens] rows of row_bytes, row_stride bytes apart, which must not change before
 * combine; NULL without tokens. slots: [num_tokens, top_k] of the group, distinct within a token.
 */
WIDEEP_EXPORT int wideep_communicator_dispatch(wideep_communicator* communicator, const void* rows,
                                               int64_t row_stride, int32_t num_tokens,
                                               const int32_t* slots);
/* Between dispatch and combine: the rows for one of this rank's slots, 0 to slots_per_rank - 1:
 * [num_rows], valid until combine. */
WIDEEP_EXPORT int wideep_communicator_received(const wideep_communicator* communicator,
                                               int32_t slot, const wideep_received_row** rows,
                                               int32_t* num_rows);
/* After all results are written. */
WIDEEP_EXPORT int wideep_communicator_combine(wideep_communicator* communicator);
/* After combine: the results of one of this rank's tokens in the order of its slots: [top_k]
 * pointers to result_bytes, valid until the next dispatch. */
WIDEEP_EXPORT int wideep_communicator_results(const wideep_communicator* communicator,
                                              int32_t token, const void* const** results);
/* The first of a token's results that a slot of this rank has written; NULL: none. The caller may
 * overwrite it, for example with the sum of the results: no other rank reads it. */
WIDEEP_EXPORT int wideep_communicator_own_result(const wideep_communicator* communicator,
                                                 int32_t token, void** result);
/* As wideep_group_fail. */
WIDEEP_EXPORT int wideep_communicator_fail(wideep_communicator* communicator, const char* message);

/* Dispatch and combine on GPUs; wideep/device_communicator.h explains the calls and their order.
 * Every rank, a process or a thread, joins the group by its name, with the same options. Pointers
 * are to device memory unless said otherwise; streams are cudaStream_t. A build without the CUDA
 * toolkit has the same functions: wideep_device_available and _join say what is missing. */
enum {
  WIDEEP_ROWS_BF16 = 0,
  WIDEEP_ROWS_F32 = 1,
  WIDEEP_ROWS_FP8 = 2,   /* codes and scales: docs/precisions.md */
  WIDEEP_ROWS_NVFP4 = 3, /* the same */
};

typedef struct wideep_device_options {
  const char* group; /* a name of 1 to 64 characters that the ranks of this machine agree on; in
                        host memory, not kept */
  int32_t rank;
  int32_t num_ranks;
  int32_t slots_per_rank;        /* slot s of the group is on rank s / slots_per_rank */
  int32_t top_k;                 /* slots of each token */
  int32_t max_tokens;            /* of each rank in a call */
  int32_t hidden;                /* values of a row */
  int32_t row_format;            /* WIDEEP_ROWS_*, of dispatched rows */
  int32_t result_format;         /* WIDEEP_ROWS_*, of experts' results */
  int32_t device;                /* number of the GPU; -1: the calling thread's current one */
  int32_t num_blocks;            /* of dispatch and combine; 0: as many as fit */
  int64_t join_timeout_ms;       /* 0: 30000 */
  int64_t timeout_ms;            /* of every single wait of a kernel; 0: 10000 */
  const int32_t* inactive_ranks; /* [num_inactive_ranks] in host memory, not kept: ranks that do not
                                    join, the same on all others */
  int64_t num_inactive_ranks;
  int32_t num_layers; /* MoE layers, for wideep_device_choose and what belongs to it; 0: not used */
  int32_t num_experts; /* of a layer; 0: not used */
  int64_t reserved[1];
} wideep_device_options;

/* The tokens of a call, and its stream. */
typedef struct wideep_device_call {
  const int32_t* num_tokens; /* one number on the device */
  const int32_t* slots;      /* [num_tokens, top_k] of the group, distinct within a token */
  const float* weights;      /* [num_tokens, top_k] router weights */
  void* stream;              /* a cudaStream_t; NULL: the default stream */
  int32_t layer;             /* for messages */
  int32_t reserved[5];
} wideep_device_call;

/* On the device: a row received for a slot, and the place for its result; 16-byte aligned. */
typedef struct wideep_device_row {
  const void* row; /* in row_format */
  void* result;    /* to be written in result_format before combine */
  float weight;    /* the router's */
  int32_t source;  /* rank */
  int32_t message; /* of the source */
  int32_t slot;    /* local */
} wideep_device_row;

typedef struct wideep_device_communicator wideep_device_communicator;

/* Whether there are kernels, a driver, and a GPU; otherwise WIDEEP_FAILED. */
WIDEEP_EXPORT int wideep_device_available(void);

/* Bytes of a row of `hidden` values in a format WIDEEP_ROWS_*; 0: there is no such row. */
WIDEEP_EXPORT int64_t wideep_device_row_bytes(int32_t format, int32_t hidden);

/* Waits for all ranks. What is missing on one of them is the error of all, before any kernel. */
WIDEEP_EXPORT int wideep_device_join(const wideep_device_options* options,
                                     wideep_device_communicator** communicator);
/* Waits for the device. NULL is allowed. */
WIDEEP_EXPORT void wideep_device_destroy(wideep_device_communicator* communicator);

/* Which experts a layer's slots hold, for wideep_device_choose. slot_to_expert: [slots of the
 * group] in host memory, -1 for a slot that is not in use; shares: the same, the part of its
 * expert's tokens that each slot gets; NULL: equal parts. stream: that of the
 * layer's calls, for which it waits. */
WIDEEP_EXPORT int wideep_device_set_placement(wideep_device_communicator* communicator,
                                              int32_t layer, const int32_t* slot_to_expert,
                                              const double* shares, void* stream);
/* Before dispatch: the slots of a call's tokens by those placements, and their counts. Of the call
 * num_tokens, layer and stream are used. experts: [num_tokens, top_k] on the device, distinct
 * within a token; slots: the same, other memory, written, for call->slots. Nothing waits. */
WIDEEP_EXPORT int wideep_device_choose(wideep_device_communicator* communicator,
                                       const wideep_device_call* call, const int32_t* experts,
                                       int32_t* slots);
/* After the last call of an iteration: hands the counts over. Nothing waits. */
WIDEEP_EXPORT int wideep_device_end_iteration(wideep_device_communicator* communicator,
                                              void* stream);
/* The counts that were handed over since the last time, of this rank's tokens: experts [num_layers,
 * num_experts] and slots [num_layers, slots of the group] in host memory, of num_iterations from
 * first_iteration on; 0 iterations: nothing new, and nothing is written to experts and slots.
 * stream: one of the caller's own, not that of the calls; waits for it. */
WIDEEP_EXPORT int wideep_device_take_loads(wideep_device_communicator* communicator, void* stream,
                                           uint64_t* experts, uint64_t* slots,
                                           int64_t* first_iteration, int64_t* num_iterations);

/* rows: [num_tokens] rows row_stride bytes apart, not NULL even without tokens. Nothing waits. */
WIDEEP_EXPORT int wideep_device_dispatch(wideep_device_communicator* communicator,
                                         const wideep_device_call* call, const void* rows,
                                         int64_t row_stride);
/* Where dispatch puts what it brings: [max_rows] rows by slot, and [slots_per_rank + 1] where each
 * slot's rows begin, both on the device and the same for all calls. */
WIDEEP_EXPORT int wideep_device_received(const wideep_device_communicator* communicator,
                                         const wideep_device_row** rows,
                                         const int32_t** slot_starts, int64_t* max_rows);
/* Between dispatch and combine: all received rows into a matrix of max_rows rows, and results back
 * out of one. Both 16-byte aligned; stride: a multiple of 16 with room for a row. */
WIDEEP_EXPORT int wideep_device_expand(wideep_device_communicator* communicator,
                                       const wideep_device_call* call, void* matrix,
                                       int64_t stride);
WIDEEP_EXPORT int wideep_device_finalize(wideep_device_communicator* communicator,
                                         const wideep_device_call* call, const void* results,
                                         int64_t stride);
/* out: [num_tokens] rows of bf16, 16-byte aligned; out_stride: a multiple of 16 with room for one.
 * shared_expert: [num_tokens, hidden] float32, added last; NULL: none. */
WIDEEP_EXPORT int wideep_device_combine(wideep_device_communicator* communicator,
                                        const wideep_device_call* call, void* out,
                                        int64_t out_stride, const float* shared_expert);
/* The first error of this rank's kernels; waits for the stream. */
WIDEEP_EXPORT int wideep_device_status(wideep_device_communicator* communicator, void* stream);
/* After an error: forgets it and goes on without inactive_ranks, [num_inactive_ranks] in host
 * memory, those included that were left out before. Collective among the ranks that go on; waits
 * for the device and for them. Layers with an expert on one of them need a new placement. */
WIDEEP_EXPORT int wideep_device_restart(wideep_device_communicator* communicator,
                                        const int32_t* inactive_ranks, int64_t num_inactive_ranks);
/* Bytes of device memory that the rank uses; 0: NULL. */
WIDEEP_EXPORT int64_t wideep_device_bytes(const wideep_device_communicator* communicator);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif /* WIDEEP_C_API_H_ */
