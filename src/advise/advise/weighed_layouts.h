// SPDX-License-Identifier: Apache-2.0
//
// The layouts of the sweep that a machine's memory has room for, with their experts placed: what
// advise() and disaggregate() go through.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "advise/question.h"
#include "cost/expert_load.h"
#include "cost/step_cost.h"
#include "wideep/status.h"

namespace wideep::advise {

struct WeighedLayout {
  cost::Layout layout;
  std::shared_ptr<const std::vector<cost::PlacedLayer>> placed;
  double imbalance = 0.0;             // mean over layers, of mean rows
  double weights = 0.0, token = 0.0;  // bytes of a rank, and of the cache of one token
  int max_requests = 0;               // of a batch, with prompts and answers; at least 1

  cost::StepCost cost(const Question& question) const {
    return {question.hardware, question.config, layout, *placed};
  }
};

struct WeighedLayouts {
  std::vector<WeighedLayout> layouts;
  int num_layouts = 0;                 // with those that are left out
  int num_too_large = 0;               // left out: without room for a request
  std::map<std::string, int> outside;  // left out: nothing can be told of so many (range.h)
};

// Errors (invalid input): as advise().
Result<WeighedLayouts> weigh_layouts(const Question& question);

// The experts of every MoE layer. Errors (invalid input): a load has other layers or experts than
// the model; a shape that the planner cannot serve.
Result<std::vector<cost::PlacedLayer>> place_layers(const Question& question,
                                                    const cost::Layout& layout);

// Calls work(i) for every i below count, on all cores that the process may use.
void for_each_in_parallel(size_t count, const std::function<void(size_t)>& work);

// How far the prediction of an iteration may be off: a share of its time.
double error_of(const cost::Hardware& hardware, const cost::StepTime& step);

}  // namespace wideep::advise
