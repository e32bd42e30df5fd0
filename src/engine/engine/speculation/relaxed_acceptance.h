// SPDX-License-Identifier: Apache-2.0
//
// Relaxed acceptance (TensorRT-LLM's use_relaxed_acceptance_for_thinking): while a model thinks, a
// greedy request keeps a draft in the place of the likeliest token if it is nearly as likely.
// Unlike everything else in speculation it changes answers.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/sampler.h"
#include "kernels/kernels.h"

namespace wideep::engine {

// A draft is kept if it is one of the top_k likeliest tokens, and its probability is at most
// `delta` smaller than that of the likeliest.
struct RelaxedAcceptance {
  int top_k = 1;
  double delta = 0.0;
  int32_t begin_token = -1;  // of thinking
  int32_t end_token = -1;

  // Whether a text thinks after these tokens, if it did (thinks) before them.
  bool thinks_after(bool thinks, std::span<const int32_t> tokens) const;
  // The draft as a token of the answer, or nullopt if it is not kept. logits: [vocab].
  std::optional<Sampled> keep(const kernels::Kernels& kernels, std::span<const float> logits,
                              int32_t draft) const;
};

}  // namespace wideep::engine
