// SPDX-License-Identifier: Apache-2.0
//
// The least work that a step of a model takes, whatever engine does it: multiply-adds, and bytes
// that cannot but be read from memory. Against the machine's limits it bounds the step's time.
//
// Counted are
//   operations   a multiply-add as two: projections, router, the experts each token chose, shared
//                expert, scores and values of attention over the positions a token may see, LM head
//                of the rows whose logits are wanted. In the last layer, the feed-forward part only
//                of those rows: no other row's is used. MLA as without absorption, the smaller
//                count for a prompt.
//   bytes        all weights outside the experts once (of the embedding only the tokens' rows),
//   each
//                expert that any token chose once, keys and values of all earlier positions once.
//
// Not counted: norms, activations, softmax, intermediate results. Bytes suppose that caches hold
// nothing from the step before, and are of the packed form that the kernels read.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>

#include "kernels/weight_format.h"
#include "model/config.h"

namespace wideep::measure {

// What a step computes, summed over ranks.
struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  int64_t attended = 0;     // Σ over tokens of the positions each attends to, itself included
  int64_t cached = 0;       // Σ over sequences of the positions in the cache before the step
  int64_t experts_hit = 0;  // Σ over MoE layers of the distinct experts that its tokens chose

  StepShape& operator+=(const StepShape& other);
  bool operator==(const StepShape&) const = default;
};

// `count` prompts of `length` tokens each, computed whole, of which the last token's logits are
// wanted.
StepShape prompt_step(int64_t count, int64_t length, int64_t experts_hit);

// One token for each of `count` sequences that have `cached` positions each.
StepShape decode_step(int64_t count, int64_t cached, int64_t experts_hit);

struct Work {
  double operations = 0.0;
  double bytes = 0.0;
};

// Of weights, and of cached keys and values: those of dispatched rows unless said otherwise.
struct Precision {
  Precision(kernels::WeightFormat format)  // NOLINT(google-explicit-constructor): the usual case
      : Precision(format, kernels::row_dtype(format)) {}
  Precision(kernels::WeightFormat format, Dtype cached) : weights(format), cache(cached) {}

  kernels::WeightFormat weights;
  Dtype cache;
};

// Sums over steps may be given as one shape only for operations: num_steps says how often the
// weights outside the experts were read.
Work work_of(const model::ModelConfig& config, const Precision& precision, const StepShape& shape,
             int64_t num_steps = 1);

// Weights of the model: elements of its matrices, embedding included, and of those that one token
// is multiplied with.
struct ParameterCount {
  int64_t all = 0;
  int64_t active = 0;
};
ParameterCount count_parameters(const model::ModelConfig& config);

}  // namespace wideep::measure
