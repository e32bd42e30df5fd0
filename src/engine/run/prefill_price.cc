// SPDX-License-Identifier: Apache-2.0
#include "run/prefill_price.h"

#include <algorithm>
#include <cmath>

namespace wideep::run {
namespace {

// Fewer prompt tokens say more of what an iteration takes by itself.
constexpr double kLeastTokens = 64;
// After so many tokens a measurement counts half.
constexpr double kHalfTokens = 8192;
constexpr double kDecodeWeight = 0.2;
constexpr double kFreshSeconds = 60;
constexpr double kDoublings = 10;  // after which a price is forgotten
constexpr double kLongestPace = 60;

double seconds_of(const Iteration& iteration) {
  int64_t wall_ns = 0;
  for (const engine::IterationRecord& rank : iteration.ranks) {
    wall_ns = std::max(wall_ns, rank.wall_ns);
  }
  return static_cast<double>(wall_ns) * 1e-9;
}

}  // namespace

// The rank with the most prompt tokens is the one that the others wait for.
void PrefillPrice::add(const Iteration& iteration, double now) {
  int64_t prompt = 0, generated = 0;
  for (const engine::IterationRecord& rank : iteration.ranks) {
    prompt = std::max(prompt, rank.prompt_tokens);
    generated += rank.generated_tokens;
  }
  const double wall = seconds_of(iteration);
  if (prompt == 0 && generated > 0) {
    const double before = decode_seconds_.value_or(wall);
    decode_seconds_ = before + kDecodeWeight * (wall - before);
  }
  const auto tokens = static_cast<double>(prompt);
  if (tokens < kLeastTokens) return;
  const double decode = generated > 0 ? decode_seconds_.value_or(0.0) : 0.0;
  const double weight = std::exp2(-tokens / kHalfTokens);
  seconds_ = weight * seconds_ + std::max(wall - decode, 0.0);
  tokens_ = weight * tokens_ + tokens;
  measured_at_ = now;
}

std::optional<double> PrefillPrice::seconds_per_token(double now) const {
  if (tokens_ == 0.0) return std::nullopt;
  const double doublings = std::max(now - measured_at_ - kFreshSeconds, 0.0) / kFreshSeconds;
  if (doublings > kDoublings) return std::nullopt;
  return seconds_ / tokens_ * std::exp2(doublings);
}

void IterationPace::set_busy(bool busy, double now) {
  if (!busy) {
    running_since_.reset();
  } else if (!running_since_) {
    running_since_ = now;
  }
}

void IterationPace::add(const Iteration& iteration, double now) {
  last_[next_] = seconds_of(iteration);
  next_ = (next_ + 1) % last_.size();
  if (running_since_) running_since_ = now;
}

double IterationPace::longest(double now) const {
  const double running = running_since_ ? now - *running_since_ : 0.0;
  return std::min(std::max(running, *std::ranges::max_element(last_)), kLongestPace);
}

}  // namespace wideep::run
