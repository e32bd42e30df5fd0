// SPDX-License-Identifier: Apache-2.0
//
// The least work of a step of a model, in any engine: multiply-adds, and bytes that must be read
// from memory. Together with the machine's limits it gives a lower bound of the step's time.
//
// Counted are
//   operations   (a multiply-add counts as two) projections, router, the experts that each token
//                chose, shared expert, scores and values of attention over the positions that a
//                token attends to, LM head for the rows whose logits are wanted. In the last layer
//                the feed-forward part for those rows only: no other row's result is used. MLA
//                without absorption, which is the smaller count for a prompt.
//   bytes        all weights outside the experts once (of the embedding only the tokens' rows),
//                each expert that any token chose once, keys and values of all earlier positions
//                once.
//
// In a layer with a window or chunks, no more positions are counted than a window or a chunk: of
// scores and values for each token, of what is read for each sequence. That is the least where all
// tokens are beyond the window, as in generation. The counts of a step do not say where its tokens
// are: of a prompt, whose first tokens attend to less, scores and values are up to a third too many
// with a window, and up to 2.3 times as many with chunks. The positions that an indexer leaves out
// are counted.
//
// Not counted: norms, activations, softmax, intermediate results. Bytes are those of the packed
// form that the kernels read; nothing is assumed to be in a cache from the step before.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/weight_format.h"
#include "model/config/config.h"
#include "model/model_forms.h"

namespace wideep::model {

// The counts that determine a step's work, summed over ranks.
struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  int64_t attended = 0;     // Σ over tokens of the positions up to each, itself included
  int64_t cached = 0;       // Σ over sequences of the positions in the cache before the step
  int64_t num_cached = 0;   // sequences that have some
  int64_t experts_hit = 0;  // Σ over MoE layers of the distinct experts that the tokens chose

  // In a layer of this reach (LayerConfig::reach), at most: as many if no token, or sequence, has
  // fewer positions than the reach, or none has more.
  int64_t attended_within(int reach) const;
  int64_t cached_within(int reach) const;

  StepShape& operator+=(const StepShape& other);
  bool operator==(const StepShape&) const = default;
};

// The step that computes `count` whole prompts of `length` tokens each, with the logits of each
// last token.
StepShape prompt_step(int64_t count, int64_t length, int64_t experts_hit);

// The step that computes one token for each of `count` sequences with `cached` positions each.
StepShape decode_step(int64_t count, int64_t cached, int64_t experts_hit);

struct Work {
  double operations = 0.0;
  double bytes = 0.0;
};

// Precision of the weights, and of cached keys and values (default: that of dispatched rows).
// forms: those of a model whose matrices differ; `weights` is then the format of its experts. Null:
// all have `weights`.
struct Precision {
  Precision(kernels::WeightFormat format)  // NOLINT(google-explicit-constructor): the usual case
      : Precision(format, kernels::row_dtype(format)) {}
  Precision(kernels::WeightFormat format, Dtype cached) : weights(format), cache(cached) {}

  kernels::WeightFormat weights;
  Dtype cache;
  std::shared_ptr<const ModelForms> forms = nullptr;
};

// The work of a step, or of num_steps steps whose shapes were added up: the weights outside the
// experts are read once per step, which the sum alone does not show.
Work work_of(const ModelConfig& config, const Precision& precision, const StepShape& shape,
             int64_t num_steps = 1);

// Multiply-adds of one layer, by part. But for `attended`, for each token.
struct LayerElements {
  int64_t mixer = 0;     // weights of attention, or what a layer has in its place
  int64_t state = 0;     // a step of its state; 0: it keeps none
  int64_t attended = 0;  // for each position that a token attends to, all heads together
  int64_t router = 0;    // weights, with those of the projections around latent experts
  int64_t mlp = 0;       // weights of the dense MLP or the shared expert
  int64_t expert = 0;    // weights of one expert; 0: the layer has none
  int products = 0;      // with matrices, those of an MLP or of experts not counted
};
LayerElements elements_of_layer(const ModelConfig& config, int layer);

// Number of weights: elements of all matrices, embedding included, and of the matrices that one
// token is multiplied with.
struct ParameterCount {
  int64_t all = 0;
  int64_t active = 0;
};
ParameterCount count_parameters(const ModelConfig& config);

}  // namespace wideep::model
