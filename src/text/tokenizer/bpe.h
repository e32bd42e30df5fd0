// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding: starts with one token per byte or character of a word (symbols.h) and
// repeatedly merges the pair of neighbours whose merge has the lowest rank, the leftmost of equals,
// until no pair can be merged.
// Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
//
// Thread safety: a Bpe is immutable and may be shared; a BpeScratch belongs to one thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/symbols.h"

namespace wideep::tokenizer {

// Working memory of encode(), reused from word to word.
class BpeScratch {
  friend class Bpe;

  // The tokens of the word so far: a doubly linked list over the positions of its first
  // symbols.
  struct Symbol {
    int32_t id;
    int32_t previous;  // -1: the first
    int32_t next;      // -1: the last
  };
  // A merge that was possible when it was pushed. `order` is rank << 32 | position of the left
  // symbol, so that the candidate with the least order comes first.
  struct Candidate {
    uint64_t order;
    int32_t merged;
    bool operator<(const Candidate& other) const { return order > other.order; }  // a min-heap
  };

  std::vector<int32_t> first_;  // characters before any merge
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class Bpe {
 public:
  Bpe(Symbols symbols, MergeTable merges)
      : symbols_(std::move(symbols)), merges_(std::move(merges)) {}

  const Symbols& symbols() const { return symbols_; }

  // Appends the word's ids. O(n log n) in its bytes. REQUIRES: below 2^31 bytes, and
  // valid UTF-8 where symbols are characters.
  void encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  void push_candidate(BpeScratch* scratch, int32_t left) const;
  void fill(std::string_view word, BpeScratch* scratch) const;
  void merge_all(BpeScratch* scratch) const;
  bool is_current(const BpeScratch& scratch, const BpeScratch::Candidate& candidate) const;

  Symbols symbols_;
  MergeTable merges_;
};

}  // namespace wideep::tokenizer
