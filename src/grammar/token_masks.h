// SPDX-License-Identifier: Apache-2.0
//
// Which tokens may follow, for a state of an Automaton: those whose bytes lead somewhere.
//
// A walk over the trie of all tokens finds them. Where few may follow, it is short. Where many may
// (inside a string), it takes milliseconds, so that it is done once for each place in a rule, and
// without what surrounds the rule there (PartMask): most tokens are decided by the rule alone. Of
// those that leave it, what they have behind its end is kept, and walked for each state, from where
// its callers go on.
//
//   inside a string:   abc    may follow wherever the string is         PartMask::inside
//                      "}     may follow if an object ends behind it    PartMask::leaving: } → the
//                                                                       token
//
// The walks see at most kMostWalkStates states that differ; what lies beyond them may not follow.
// Patterns with so many are made to be slow. The bound is the same whatever has been asked before,
// and single bytes always remain, so that an answer can go on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/token_trie.h"
#include "grammar/vocabulary.h"

namespace wideep::grammar {

inline constexpr size_t kMostWalkStates = 4096;

// [vocabulary / 64] a bit for each token.
using TokenBits = std::vector<uint64_t>;
inline void allow(int32_t token, TokenBits* bits) {
  (*bits)[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}
inline bool is_allowed(std::span<const uint64_t> bits, int32_t token) {
  return (bits[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

// Of a place in a rule.
struct PartMask {
  TokenBits inside;      // tokens that do not leave the rule
  TokenTrie leaving;     // of the others, by what they have behind an end of it
  bool is_whole = true;  // false: too many leave it to keep them
  size_t bytes() const { return inside.size() * sizeof(uint64_t) + leaving.bytes(); }
};

// Those of a rank. Rules that grammars have in common share them.
//
// Thread safety: any thread.
class PartMasks {
 public:
  using Part = std::shared_ptr<const PartMask>;
  Part find(const Automaton::Within& where) const;
  void add(const Automaton::Within& where, Part part);
  size_t bytes() const;

 private:
  static constexpr size_t kMostBytes = size_t{128} << 20;
  mutable std::mutex mutex_;
  std::map<Automaton::Within, Part> parts_;
  size_t bytes_ = 0;
};

// Of one automaton. Not thread safe.
class TokenMasks {
 public:
  // References outlive this.
  TokenMasks(const Vocabulary& vocabulary, PartMasks& parts)
      : vocabulary_(vocabulary), parts_(parts) {}

  // Adds the tokens that may follow. REQUIRES: bits has vocabulary.size() of them.
  void allow_after(Automaton& automaton, Automaton::State state, TokenBits* bits);
  bool any_after(Automaton& automaton, Automaton::State state);

  // The automaton's states are numbered anew.
  void forget() { known_.clear(), bytes_ = 0; }
  size_t bytes() const { return bytes_; }

 private:
  struct Mask {
    std::vector<PartMasks::Part> parts = {};
    std::vector<int32_t> tokens = {};
    TokenBits all = {};  // instead of both
    bool has_any = false;
  };
  const Mask& of(Automaton& automaton, Automaton::State state);
  Mask find(Automaton& automaton, Automaton::State state);
  PartMasks::Part part_of(Automaton& automaton, Automaton::Item item);

  const Vocabulary& vocabulary_;
  PartMasks& parts_;
  std::unordered_map<Automaton::State, Mask> known_;
  size_t bytes_ = 0;
};

}  // namespace wideep::grammar
