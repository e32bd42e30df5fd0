// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/acceptance.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace wideep::engine {
namespace {

constexpr double kKept = 0.995;         // of the counts of a class, at each of its trials
constexpr double kKeptOfRequest = 0.9;  // of a request's own record
constexpr double kPrior = 4.0;          // trials that the first estimates count for

// Before anything is known: the longer the match, the likelier it goes on alike.
double first_estimate(size_t match_class) {
  return 0.25 + 0.6 * static_cast<double>(match_class) / 7.0;
}

}  // namespace

Acceptance::Acceptance() {
  for (size_t i = 0; i < counts_.size(); ++i) {
    counts_[i].fill({.tried = kPrior, .right = kPrior * first_estimate(i)});
  }
}

// Matches of 1, 2, 3–4, 5–8 … tokens.
size_t Acceptance::class_of(int match) {
  const auto length = static_cast<unsigned>(std::max(match, 1) - 1);
  return std::min(static_cast<size_t>(std::bit_width(length)), size_t{kMatches - 1});
}

double Acceptance::general(int match, int index) const {
  const Count& count = counts_[class_of(match)][static_cast<size_t>(std::min(index, kPlaces - 1))];
  return count.right / count.tried;
}

double Acceptance::probability(int request, int match, int index) const {
  const auto found = requests_.find(request);
  double factor = 1.0;
  if (found != requests_.end()) {
    factor = (found->second.right + kPrior) / (found->second.expected + kPrior);
  }
  return std::clamp(general(match, index) * factor, 0.01, 0.98);
}

// Returns whether the token was the draft's next one.
bool Acceptance::compare(Request& request, int32_t token) {
  const auto index = static_cast<int>(request.next);
  const double expected = general(request.draft.match, index);
  const bool right = request.draft.tokens[request.next++] == token;
  Count& count =
      counts_[class_of(request.draft.match)][static_cast<size_t>(std::min(index, kPlaces - 1))];
  count.tried = count.tried * kKept + 1;
  count.right = count.right * kKept + (right ? 1 : 0);
  request.expected = request.expected * kKeptOfRequest + expected;
  request.right = request.right * kKeptOfRequest + (right ? 1 : 0);
  return right;
}

bool Acceptance::follow(int request, std::span<const int32_t> tokens, const Draft& draft) {
  Request& known = requests_[request];
  bool right = true;
  for (const int32_t token : tokens) {
    if (known.next == known.draft.tokens.size()) break;
    right = compare(known, token);
    if (!right) break;
  }
  // A draft that is still right is followed to its end, to learn about its later places.
  if (right && known.next < known.draft.tokens.size()) return true;
  known.draft = draft;
  known.next = 0;
  return !draft.tokens.empty();
}

}  // namespace wideep::engine
