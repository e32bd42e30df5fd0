// SPDX-License-Identifier: Apache-2.0
//
// How likely a draft's tokens are right, learned from the texts: by the length of the match that
// the draft follows from and the token's place in it, over all requests; and by how much better or
// worse the request's own drafts do than those.
//
// Drafts that are not verified teach as well: the text that is generated without them shows whether
// they were right.
//
// Deterministic. Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/speculation/drafter.h"

namespace wideep::engine {

class Acceptance {
 public:
  Acceptance();

  // The request's text goes on with `tokens`, and then perhaps with the draft: compares what was
  // drafted before with them. Returns whether there is a draft to compare with what comes.
  bool follow(int request, std::span<const int32_t> tokens, const Draft& draft);
  void end(int request) { requests_.erase(request); }

  // How likely the draft's token with this index is right if those before it are.
  double probability(int request, int match, int index) const;

 private:
  static constexpr int kMatches = 8;  // classes of match lengths
  static constexpr int kPlaces = 16;  // the last one stands for all later places
  struct Count {
    double tried = 0;
    double right = 0;
  };
  struct Request {
    Draft draft;                     // under test
    size_t next = 0;                 // its first token that has not been compared
    double expected = 0, right = 0;  // of late
  };
  static size_t class_of(int match);
  double general(int match, int index) const;
  bool compare(Request& request, int32_t token);

  std::array<std::array<Count, kPlaces>, kMatches> counts_;
  std::unordered_map<int, Request> requests_;
};

}  // namespace wideep::engine
