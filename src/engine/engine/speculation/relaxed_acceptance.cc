// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/relaxed_acceptance.h"

#include <cmath>

namespace wideep::engine {

bool RelaxedAcceptance::thinks_after(bool thinks, std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token == begin_token) thinks = true;
    if (token == end_token) thinks = false;
  }
  return thinks;
}

std::optional<Sampled> RelaxedAcceptance::keep(const kernels::Kernels& kernels,
                                               std::span<const float> logits, int32_t draft) const {
  const Sampled likeliest = most_likely(kernels, logits, 1).front();
  if (likeliest.token == draft) return likeliest;
  const float logit = logits[static_cast<size_t>(draft)];
  int before = 0;  // tokens that are likelier; of equal ones those with smaller ids
  for (size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] > logit || (logits[token] == logit && token < static_cast<size_t>(draft))) {
      ++before;
    }
  }
  const float log_probability =
      likeliest.log_probability + (logit - logits[static_cast<size_t>(likeliest.token)]);
  const double behind = std::exp(static_cast<double>(likeliest.log_probability)) -
                        std::exp(static_cast<double>(log_probability));
  // A NaN is not kept: it is not at most delta behind.
  if (before >= top_k || !(behind <= delta)) return {};
  return Sampled{draft, log_probability};
}

}  // namespace wideep::engine
