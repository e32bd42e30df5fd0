// SPDX-License-Identifier: Apache-2.0
//
// Patterns of tokens and what has followed them: the pool of TensorRT-LLM's n-gram drafter
// (tensorrt_llm/_torch/speculative/ngram.py), with its rules to the letter.
//
// A pattern is 1 to max_matching_ngram_size tokens; its matches are what came next, 1 to
// max_draft_len tokens, in the order in which they were added. A match that is added removes those
// of the pattern that are shorter. So the end of a text, whose matches are cut short, adds longer
// ones as it grows.
//
// Its is_keep_all changes nothing, there and here: without it a longer match replaces the others,
// which are all shorter and would be removed anyway; one that is not longer is added either way.
//
// TensorRT-LLM's pool grows without limit. This one holds max_bytes and gives up the patterns that
// were added first.
//
// All steps take constant time: a common token has as many matches as the texts have continuations.
//
// Deterministic: the state depends on the calls alone. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::engine {

struct NgramOptions {
  int max_draft_len = 1;            // tokens of a match, at least 1
  int max_matching_ngram_size = 2;  // tokens of a pattern, at least 1
  // Which of a pattern's matches is drafted: the first that was added, or the last.
  bool is_use_oldest = true;
  size_t max_bytes = size_t{64} << 20;
};

class NgramPool {
 public:
  explicit NgramPool(const NgramOptions& options);

  // Adds all patterns of the tokens, each with what follows it: the longer patterns first, those of
  // equal length from left to right.
  void add(std::span<const int32_t> tokens);

  struct Found {
    std::span<const int32_t> tokens;  // valid until the next add(); empty: nothing was found
    int pattern_size = 0;
  };
  // What follows the longest known pattern at the end of the tokens, which are at least one more
  // than the pattern.
  Found find(std::span<const int32_t> tokens) const;

  int num_patterns() const { return num_patterns_; }
  int num_matches() const { return num_matches_; }
  size_t bytes() const;  // at most max_bytes, but for a single pattern
  int64_t num_evicted() const { return num_evicted_; }  // patterns, since the start

 private:
  using Id = int32_t;
  static constexpr Id kNone = -1;
  using Tokens = std::span<const int32_t>;

  struct Pattern {
    uint32_t hash = 0;
    int32_t size = 0;  // tokens
    Id next_in_bucket = kNone;
    Id younger = kNone;  // the pattern that was added next
    // Lists of its matches in the order of addition: those of max_draft_len tokens, which stay, and
    // the few shorter ones.
    Id first_full = kNone, last_full = kNone;
    Id first_short = kNone, last_short = kNone;
  };
  struct Match {
    uint32_t hash = 0;  // of the pattern and the tokens
    int32_t length = 0;
    Id pattern = kNone;
    Id next_in_bucket = kNone;
    Id next = kNone;      // in the list of its pattern
    uint64_t number = 0;  // of its addition
  };
  // Records with a fixed number of tokens each; released ones are used again.
  template <typename Record>
  class Store {
   public:
    explicit Store(int max_tokens) : max_tokens_(static_cast<size_t>(max_tokens)) {}
    Id take();
    void release(Id id) { free_.push_back(id); }
    Record& operator[](Id id) { return records_[static_cast<size_t>(id)]; }
    const Record& operator[](Id id) const { return records_[static_cast<size_t>(id)]; }
    int32_t* tokens(Id id) { return tokens_.data() + static_cast<size_t>(id) * max_tokens_; }
    const int32_t* tokens(Id id) const {
      return tokens_.data() + static_cast<size_t>(id) * max_tokens_;
    }
    // With its place in the buckets.
    size_t bytes_each() const {
      return sizeof(Record) + max_tokens_ * sizeof(int32_t) + sizeof(Id);
    }

   private:
    size_t max_tokens_;
    std::vector<Record> records_;
    std::vector<int32_t> tokens_;
    std::vector<Id> free_;
  };

  Id find_pattern(Tokens tokens, uint32_t hash) const;
  Id add_pattern(Tokens tokens, uint32_t hash);
  bool has_match(Id pattern, Tokens tokens, uint32_t hash) const;
  void add_match(Id pattern, Tokens tokens);
  void remove_short(Id pattern, int shorter_than);
  void remove_list(Id& first, Id& last);
  void remove_match(Id match);
  Tokens tokens_of(Id match) const;
  void evict_oldest();

  NgramOptions options_;
  Store<Pattern> patterns_;
  Store<Match> matches_;
  std::vector<Id> pattern_buckets_, match_buckets_;
  Id oldest_ = kNone, newest_ = kNone;  // patterns in the order of addition
  int num_patterns_ = 0, num_matches_ = 0;
  uint64_t num_added_ = 0;  // matches
  int64_t num_evicted_ = 0;
};

}  // namespace wideep::engine
