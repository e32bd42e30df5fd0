// SPDX-License-Identifier: Apache-2.0
//
// From logits to a token.
//
// The result depends only on the logits, the parameters, the request's draw and the step; not on
// the rank, the batch or other requests. Of equal logits the lower token id wins.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "schedule/request.h"

namespace wideep::engine {

// In the place of a token where there is none.
inline constexpr int32_t kNoToken = -1;

struct Sampled {
  int32_t token = 0;
  // Of the token under softmax(logits) of all tokens, before temperature and cuts.
  float log_probability = 0.0f;
};

// Which tokens may be sampled. Both say the same; asking for one token costs less than for all.
struct AllowedTokens {
  std::function<bool(int32_t token)> has;
  std::function<std::span<const uint64_t>()> bits;  // [vocab / 64]; REQUIRES: one is set
};

// Whether a token follows from the logits: none is NaN, and the largest is finite. A broken model,
// or one whose sums have overflowed, has others.
bool are_numbers(const kernels::Kernels& kernels, std::span<const float> logits);

// What distinguishes the random numbers of one seed.
struct Draw {
  int request = 0;  // Request::draw
  int step = 0;     // how many tokens the request has generated before
};

// logits: [vocab], numbers. allowed: null: all tokens. Temperature and cuts then apply to the
// allowed ones among themselves.
Sampled sample(const kernels::Kernels& kernels, std::span<const float> logits,
               const SamplingParams& params, const Draw& draw,
               const AllowedTokens* allowed = nullptr);

// As Sampled::log_probability.
float log_probability(const kernels::Kernels& kernels, std::span<const float> logits,
                      int32_t token);

// The `count` most likely tokens (fewer if the vocabulary is smaller), the likeliest first, with
// log probabilities as in sample(). REQUIRES: count ≥ 1.
std::vector<Sampled> most_likely(const kernels::Kernels& kernels, std::span<const float> logits,
                                 int count);

}  // namespace wideep::engine
