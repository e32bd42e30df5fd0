// SPDX-License-Identifier: Apache-2.0
//
// From logits to a token.
//
// The result depends on the logits, the parameters, the request's draw and the step only: not on
// the rank, the batch, or what was sampled for others. Equal logits go to the lower token id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/kernels.h"

namespace wideep::engine {

struct Sampled {
  int32_t token = 0;
  float log_probability = 0.0f;  // of the token under softmax(logits), before temperature and cuts
};

// logits: [vocab]. request: Request::draw. step: how many tokens the request has generated before.
Sampled sample(const kernels::Kernels& kernels, std::span<const float> logits,
               const SamplingParams& params, int request, int step);

// The `count` most likely tokens, or all there are, the likeliest first; log probabilities as
// sample() tells them.
std::vector<Sampled> most_likely(const kernels::Kernels& kernels, std::span<const float> logits,
                                 int count);

}  // namespace wideep::engine
