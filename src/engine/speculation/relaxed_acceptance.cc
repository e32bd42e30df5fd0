// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/relaxed_acceptance.h"

#include <algorithm>
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
  const std::vector<Sampled> likeliest = most_likely(kernels, logits, top_k);
  const auto found = std::ranges::find(likeliest, draft, &Sampled::token);
  if (found == likeliest.end()) return {};
  const double behind = std::exp(static_cast<double>(likeliest.front().log_probability)) -
                        std::exp(static_cast<double>(found->log_probability));
  return behind <= delta ? std::optional(*found) : std::nullopt;
}

}  // namespace wideep::engine
