// SPDX-License-Identifier: Apache-2.0
//
// The advisor: weighs layouts of a model on a machine for a workload, and recommends one.
//
// In the steady state a batch of b requests generates b tokens in an iteration, and b · isl / osl
// prompt tokens arrive beside them, in chunks of max_num_tokens. The time between two tokens of a
// request is the mean time of an iteration, with and without a chunk; the time to the first token
// is what its prompt's chunks take, after half an iteration of waiting.
//
// Thread safety: pure functions; advise() computes on all cores that the process may use.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "advise/question.h"
#include "advise/serving_simulation.h"
#include "cost/step_cost.h"
#include "model/config/config.h"
#include "plan/model_plan.h"
#include "wideep/status.h"

namespace wideep::advise {

// What serving in a layout, with a number of requests in each batch, is predicted to be like.
struct Candidate {
  cost::Layout layout;
  int batch = 0;                  // requests of a batch
  double tokens_of_step = 1.0;    // generated for each request; more than 1 with drafts
  cost::StepTime step;            // of an iteration without prompt tokens
  double tpot = 0.0, ttft = 0.0;  // seconds
  double longest = 0.0;           // an iteration that has prompt tokens, too: seconds
  double tokens_per_rank = 0.0;   // generated per second
  double tokens_per_user = 0.0;   // generated per second
  double memory = 0.0;            // bytes of a rank, with the cache of its batch
  double imbalance = 0.0;         // mean over layers, of mean rows
  double error = 0.0;             // of the prediction: a share of the time

  double requests() const { return static_cast<double>(batch) * layout.num_batches(); }
};

struct Advice {
  int num_layouts = 0;                 // weighed, with every batch
  int num_too_large = 0;               // of them, without room for a request
  std::map<std::string, int> outside;  // of them, nothing can be told of so many (range.h)
  std::vector<Candidate> all;          // of those with room, every batch
  std::vector<Candidate> pareto;       // none is better in both tokens_per_rank and tokens_per_user
  std::optional<Candidate> best;       // that meets the workload's limits
  std::string nearest;                 // if none does: what is possible
  std::vector<std::string> reasons;
};

// Errors (invalid input): the hardware's range has none of the layouts; a load has other layers or
// experts than the model; prompt and answer are longer than the model's positions; no layout fits
// the memory.
Result<Advice> advise(const Question& question);

// Whether it keeps the workload's limits and carries its rate.
bool meets(const Candidate& candidate, const Workload& workload);
// With a rate the fewest ranks that carry it; else the most tokens of a rank.
bool is_better(const Candidate& a, const Candidate& b, const Workload& workload);

// The cost of iterations in a layout, whatever the workload. Errors (invalid input): as advise().
Result<cost::StepCost> step_cost(const Question& question, const cost::Layout& layout);

// Serves `num_requests` requests of the workload in simulated time, with the candidate's limits: as
// many at the same time as it has, or arriving at the workload's rate (a Poisson process).
// Errors (invalid input): a request does not fit into the cache; the layout has drafts, which the
// simulation does not know.
Result<SimulatedServing> simulate_candidate(const Candidate& candidate, const cost::StepCost& cost,
                                            const Workload& workload, const Choices& choices,
                                            int num_requests);

// Tokens that a step generates for a request: drafts until the first wrong one, and the one after
// them.
double tokens_of_step(int drafts, double acceptance);

}  // namespace wideep::advise
