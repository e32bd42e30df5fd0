// SPDX-License-Identifier: Apache-2.0
//
// A grammar that answers follow, on a rank that samples them. All requests with the same grammar
// share one: what was found out for one of them need not be found out again.
//
// The end of an answer is an end token of the vocabulary: it may follow where the text is whole.
// Where no other token may follow (the vocabulary cannot spell what the grammar wants), end tokens
// may, too.
//
//   Progress progress;
//   constraint.follow(generated, &progress);
//   if (!constraint.allows(progress, likeliest)) constraint.find_allowed(progress, &bits);
//
// What is allowed depends on the grammar, the vocabulary and the tokens before, and on nothing
// else.
//
// Thread safety: any thread, but for begin_step().
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/progress.h"
#include "grammar/token_masks.h"
#include "grammar/vocabulary.h"

namespace wideep::grammar {

class Constraint {
 public:
  // References outlive this.
  Constraint(Grammar grammar, const Vocabulary& vocabulary, PartMasks& parts);

  // To the end of these tokens, all that were generated.
  void follow(std::span<const int32_t> generated, Progress* progress);
  Progress after(const Progress& progress, int32_t token);

  bool allows(const Progress& progress, int32_t token);
  // Sets the bits of the tokens that may follow, of at least the vocabulary's size, and clears all
  // others.
  void find_allowed(const Progress& progress, int vocab_size, TokenBits* bits);

  // Frees memory if there is too much of it. REQUIRES: no other call at the same time; answers are
  // followed again before anything else is asked.
  void begin_step();
  size_t bytes() const { return automaton_.bytes() + masks_.bytes(); }

 private:
  void take(int32_t token, Progress* progress);
  bool may_end(const Progress& progress);

  static constexpr size_t kMaxBytes = size_t{32} << 20;

  const Grammar grammar_;
  const Vocabulary& vocabulary_;
  std::mutex mutex_;  // guards the members below
  Automaton automaton_;
  TokenMasks masks_;
  uint64_t generation_ = 1;
};

}  // namespace wideep::grammar
