// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace wideep::grammar {

// How far an answer has followed a Constraint. A plain value: of tokens that are rejected keep the
// one before them.
struct Progress {
  uint64_t generation = 0;  // in which the state's number holds; 0: nothing was followed
  int32_t state = 0;        // Automaton::State
  size_t tokens = 0;
  bool has_ended = false;  // an end token has come
};

}  // namespace wideep::grammar
