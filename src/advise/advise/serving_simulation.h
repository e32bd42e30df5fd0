// SPDX-License-Identifier: Apache-2.0
//
// Serves requests in simulated time: the engine's own scheduler decides what every iteration
// computes, and a prediction says how long it takes. So queues, chunks of prompts, admission by
// cache and the mixture of prompts and generated tokens are those of the engine.
//
// Ranks with requests of their own run their schedulers side by side; an iteration ends for all at
// the same time, and a request goes to the rank with the fewest tokens to compute.
//
// Thread safety: one thread per call.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/percentiles.h"
#include "model/model_work.h"
#include "schedule/scheduler_limits.h"
#include "wideep/status.h"

namespace wideep::advise {

struct SimulatedRequest {
  double arrival = 0.0;  // seconds
  int isl = 1;           // tokens of the prompt
  int osl = 1;           // tokens of the answer
};

// What serving takes beside the engine's iterations, in seconds.
struct ServingOverhead {
  double request = 0.0;    // from a client's sending until ranks know it, and back to the client
  double iteration = 0.0;  // that an iteration is longer: what ranks report to the server
  double token = 0.0;      // the same for each of its tokens, where server and clients share cores
};

struct SimulationOptions {
  int num_batches = 1;    // ranks, or groups of them, with requests of their own
  int context_ranks = 1;  // that share the sequences of a batch (context parallelism)
  // micro_batches: the stages of a pipeline; each batch has so many iterations under way.
  engine::SchedulerLimits limits;
  ServingOverhead overhead;
  // Requests at the same time: the next begins when one ends, whatever its arrival. nullopt: each
  // begins when it arrives.
  std::optional<int> concurrency;
};

// Seconds of an iteration, through all stages, in which each batch computes this; of ranks that
// share its sequences, the busiest.
using IterationTime = std::function<double(std::span<const model::StepShape>)>;

struct SimulatedServing {
  base::Percentiles ttft, tpot, end_to_end;  // seconds; tpot of answers of several tokens
  double seconds = 0.0;                      // from the first arrival to the last token
  double output_tokens_per_second = 0.0;
  int iterations = 0;
};

// Errors (invalid input): a request can never fit into the cache.
Result<SimulatedServing> simulate_serving(std::span<const SimulatedRequest> requests,
                                          const SimulationOptions& options,
                                          const IterationTime& iteration_time);

}  // namespace wideep::advise
