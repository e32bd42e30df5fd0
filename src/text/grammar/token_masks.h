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
// A loop is one place, however many repetitions it still takes: of each token it is known how many
// it begins, and after how many it leaves. Where very many leave a place, only those are kept that
// go on with a byte that may follow there.
//
// The walks see at most kMaxWalkStates states that differ; what lies beyond them may not follow.
// Patterns with so many are made to be slow. The bound is the same whatever has been asked before,
// and single bytes always remain, so that an answer can go on.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

inline constexpr size_t kMaxWalkStates = 4096;

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
  TokenBits inside = {};  // tokens that do not leave the rule
  size_t num_inside = 0;
  // Those of `inside` that begin two repetitions or more, those first that begin the most.
  struct Repeating {
    int32_t token = 0, begun = 0;
  };
  std::vector<Repeating> repeating = {};
  // [repetitions] of the other tokens: by what they have behind an end of the rule.
  std::vector<TokenTrie> leaving = {};
  bool is_whole = true;  // false: too many leave it to keep them
  // Of a loop: no token of `inside` could leave it before, with what may follow there, so that
  // those that begin too many repetitions may not follow.
  bool is_greedy = true;
  size_t bytes() const;
};

// Those of a rank. Rules that grammars have in common share them.
//
// Thread safety: any thread.
class PartMasks {
 public:
  struct Key {
    Automaton::Within where;
    int32_t max = kNoMax;               // repetitions
    std::array<uint64_t, 4> next = {};  // bytes that leaving tokens go on with
    auto operator<=>(const Key&) const = default;
  };
  using Part = std::shared_ptr<const PartMask>;
  Part find(const Key& key) const;
  void add(const Key& key, Part part);
  size_t bytes() const;

 private:
  static constexpr size_t kMaxBytes = size_t{128} << 20;
  mutable std::mutex mutex_;
  std::map<Key, Part> parts_;
  size_t bytes_ = 0;
};

// Makes the masks of the places that answers come to first, so that they are there when answers
// are. Takes at most some tenths of a second; ends early where goes_on() is false.
void prepare_masks(const Grammar& grammar, const Vocabulary& vocabulary, PartMasks& parts,
                   const std::function<bool()>& goes_on);

// Of one automaton. Not thread safe.
class TokenMasks {
 public:
  // Tests have smaller ones, so that small vocabularies take all ways.
  struct Limits {
    size_t short_nodes = 4096;  // of a walk that needs no PartMask
    // Ends of tokens that are kept for a place, whatever follows it; else for what follows it.
    size_t leaving = 4096, leaving_there = size_t{1} << 16;
  };
  // References outlive this. All that share `parts` have the same limits.
  TokenMasks(const Vocabulary& vocabulary, PartMasks& parts)
      : TokenMasks(vocabulary, parts, Limits()) {}
  TokenMasks(const Vocabulary& vocabulary, PartMasks& parts, const Limits& limits)
      : vocabulary_(vocabulary), parts_(parts), limits_(limits) {}

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
  bool is_large(Automaton& automaton, Automaton::Item item) const;
  struct Part {
    PartMasks::Part inside = {}, leaving = {};  // the members of this name
    bool is_whole = true;                       // false: they are not enough
  };
  Part part_of(Automaton& automaton, Automaton::Item item);
  PartMasks::Part walked(Automaton& automaton, Automaton::Item item, const PartMasks::Key& key);

  const Vocabulary& vocabulary_;
  PartMasks& parts_;
  const Limits limits_;
  std::unordered_map<Automaton::State, Mask> known_;
  size_t bytes_ = 0;
};

}  // namespace wideep::grammar
