// SPDX-License-Identifier: Apache-2.0
//
// Patterns and matches are records in two arrays, found through hash tables whose chains run
// through the records. Lists by number instead of pointers and nodes make the bytes of a record
// known, so that the pool can count what it holds against max_bytes.
//
// A common pattern may have very many matches. Therefore a match is looked up by a hash of its
// pattern and its tokens, not along the pattern's list; and the short matches, which a longer one
// removes, are in a list of their own, so that the full ones are never walked through.
#include "engine/speculation/ngram_pool.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::engine {
namespace {

// FNV-1a over whole tokens, mixed at the end because buckets take its lower bits.
uint32_t hash_of(std::span<const int32_t> tokens, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3u;
  }
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(hash >> 32);
}

// The numbers of buckets are powers of two.
template <typename Id>
Id& bucket_of(std::vector<Id>& buckets, uint32_t hash) {
  return buckets[hash & (buckets.size() - 1)];
}

// Doubles the buckets when there is a record for each.
template <typename Id, typename Records>
void make_room(std::vector<Id>& buckets, int num_records, Records& records) {
  if (static_cast<size_t>(num_records) < buckets.size()) return;
  std::vector<Id> more(buckets.size() * 2, -1);
  for (Id each : buckets) {
    while (each >= 0) {
      const Id next = records[each].next_in_bucket;
      Id& bucket = bucket_of(more, records[each].hash);
      records[each].next_in_bucket = bucket;
      bucket = each;
      each = next;
    }
  }
  buckets = std::move(more);
}

template <typename Id, typename Records>
void unlink(std::vector<Id>& buckets, Records& records, Id removed) {
  Id* link = &bucket_of(buckets, records[removed].hash);
  while (*link != removed) link = &records[*link].next_in_bucket;
  *link = records[removed].next_in_bucket;
}

}  // namespace

template <typename Record>
NgramPool::Id NgramPool::Store<Record>::take() {
  if (!free_.empty()) {
    const Id id = free_.back();
    free_.pop_back();
    (*this)[id] = {};
    return id;
  }
  records_.emplace_back();
  tokens_.resize(tokens_.size() + max_tokens_);
  return static_cast<Id>(records_.size()) - 1;
}

NgramPool::NgramPool(const NgramOptions& options)
    : options_(options),
      patterns_(options.max_matching_ngram_size),
      matches_(options.max_draft_len),
      pattern_buckets_(64, kNone),
      match_buckets_(64, kNone) {
  WIDEEP_CHECK(options.max_draft_len >= 1 && options.max_matching_ngram_size >= 1);
}

size_t NgramPool::bytes() const {
  return static_cast<size_t>(num_patterns_) * patterns_.bytes_each() +
         static_cast<size_t>(num_matches_) * matches_.bytes_each();
}

void NgramPool::add(Tokens tokens) {
  if (tokens.size() < 2) return;
  const auto longest = static_cast<size_t>(options_.max_draft_len);
  const auto max = static_cast<size_t>(options_.max_matching_ngram_size);
  for (size_t size = std::min(max, tokens.size() - 1); size > 0; --size) {
    for (size_t at = 0; at + size < tokens.size(); ++at) {
      const Tokens pattern = tokens.subspan(at, size);
      const size_t next = at + size;
      const uint32_t hash = hash_of(pattern);
      Id known = find_pattern(pattern, hash);
      if (known == kNone) known = add_pattern(pattern, hash);
      add_match(known, tokens.subspan(next, std::min(longest, tokens.size() - next)));
      while (bytes() > options_.max_bytes && num_patterns_ > 1) evict_oldest();
    }
  }
}

NgramPool::Found NgramPool::find(Tokens tokens) const {
  if (tokens.size() < 2) return {};
  const auto max = static_cast<size_t>(options_.max_matching_ngram_size);
  for (size_t size = std::min(max, tokens.size() - 1); size > 0; --size) {
    const Tokens ending = tokens.last(size);
    const Id known = find_pattern(ending, hash_of(ending));
    if (known == kNone) continue;
    const Pattern& pattern = patterns_[known];
    Id match = options_.is_use_oldest ? pattern.first_full : pattern.last_full;
    const Id other = options_.is_use_oldest ? pattern.first_short : pattern.last_short;
    if (match == kNone || (other != kNone && options_.is_use_oldest == (matches_[other].number <
                                                                        matches_[match].number))) {
      match = other;
    }
    return {tokens_of(match), static_cast<int>(size)};
  }
  return {};
}

// ---- patterns ----

NgramPool::Id NgramPool::find_pattern(Tokens tokens, uint32_t hash) const {
  Id known = pattern_buckets_[hash & (pattern_buckets_.size() - 1)];
  for (; known != kNone; known = patterns_[known].next_in_bucket) {
    const Pattern& pattern = patterns_[known];
    if (pattern.hash == hash && pattern.size == static_cast<int32_t>(tokens.size()) &&
        std::equal(tokens.begin(), tokens.end(), patterns_.tokens(known))) {
      return known;
    }
  }
  return kNone;
}

NgramPool::Id NgramPool::add_pattern(Tokens tokens, uint32_t hash) {
  make_room(pattern_buckets_, num_patterns_, patterns_);
  const Id added = patterns_.take();
  Id& bucket = bucket_of(pattern_buckets_, hash);
  patterns_[added].hash = hash;
  patterns_[added].size = static_cast<int32_t>(tokens.size());
  patterns_[added].next_in_bucket = bucket;
  std::copy(tokens.begin(), tokens.end(), patterns_.tokens(added));
  bucket = added;
  (newest_ == kNone ? oldest_ : patterns_[newest_].younger) = added;
  newest_ = added;
  ++num_patterns_;
  return added;
}

// REQUIRES: there are several patterns.
void NgramPool::evict_oldest() {
  const Id evicted = oldest_;
  unlink(pattern_buckets_, patterns_, evicted);
  Pattern& pattern = patterns_[evicted];
  remove_list(pattern.first_full, pattern.last_full);
  remove_list(pattern.first_short, pattern.last_short);
  oldest_ = pattern.younger;
  patterns_.release(evicted);
  --num_patterns_;
  ++num_evicted_;
}

// ---- matches ----

NgramPool::Tokens NgramPool::tokens_of(Id match) const {
  return {matches_.tokens(match), static_cast<size_t>(matches_[match].length)};
}

bool NgramPool::has_match(Id pattern, Tokens tokens, uint32_t hash) const {
  Id known = match_buckets_[hash & (match_buckets_.size() - 1)];
  for (; known != kNone; known = matches_[known].next_in_bucket) {
    const Match& match = matches_[known];
    if (match.hash == hash && match.pattern == pattern &&
        std::ranges::equal(tokens_of(known), tokens)) {
      return true;
    }
  }
  return false;
}

void NgramPool::add_match(Id pattern, Tokens tokens) {
  const auto length = static_cast<int32_t>(tokens.size());
  const uint32_t hash = hash_of(tokens, static_cast<uint64_t>(pattern) << 32);
  if (has_match(pattern, tokens, hash)) return;
  remove_short(pattern, length);
  make_room(match_buckets_, num_matches_, matches_);
  const Id added = matches_.take();
  Id& bucket = bucket_of(match_buckets_, hash);
  matches_[added] = {.hash = hash,
                     .length = length,
                     .pattern = pattern,
                     .next_in_bucket = bucket,
                     .number = num_added_++};
  std::copy(tokens.begin(), tokens.end(), matches_.tokens(added));
  bucket = added;
  Pattern& owner = patterns_[pattern];
  const bool full = length == options_.max_draft_len;
  Id& last = full ? owner.last_full : owner.last_short;
  (last == kNone ? (full ? owner.first_full : owner.first_short) : matches_[last].next) = added;
  last = added;
  ++num_matches_;
}

void NgramPool::remove_match(Id match) {
  unlink(match_buckets_, matches_, match);
  matches_.release(match);
  --num_matches_;
}

void NgramPool::remove_list(Id& first, Id& last) {
  while (first != kNone) {
    const Id next = matches_[first].next;
    remove_match(first);
    first = next;
  }
  last = kNone;
}

void NgramPool::remove_short(Id pattern, int shorter_than) {
  Pattern& owner = patterns_[pattern];
  Id each = owner.first_short;
  owner.first_short = owner.last_short = kNone;
  while (each != kNone) {
    const Id next = matches_[each].next;
    if (matches_[each].length < shorter_than) {
      remove_match(each);
    } else {
      (owner.last_short == kNone ? owner.first_short : matches_[owner.last_short].next) = each;
      matches_[each].next = kNone;
      owner.last_short = each;
    }
    each = next;
  }
}

}  // namespace wideep::engine
