// SPDX-License-Identifier: Apache-2.0
//
// Symbols are a linked list over the positions of the first symbols of the word; a merge extends
// the left symbol and removes the right one. Possible merges wait in a heap. A merge changes the
// pairs on both sides; their old candidates stay in the heap and are skipped when they come out,
// because removing them from the middle of a heap would be slow. Each merge pushes at most two
// candidates, so that the heap never holds more than three times the number of symbols.
#include "tokenizer/bpe.h"

#include <algorithm>

namespace wideep::tokenizer {
namespace {

constexpr int32_t kRemoved = -1;  // the id of a symbol that was merged into its left neighbour

// Makes a list of `size` symbols, of which the i-th is id_of(i).
template <typename IdOf, typename Symbol>
void link(size_t size, IdOf id_of, std::vector<Symbol>* symbols) {
  const auto count = static_cast<int32_t>(size);
  symbols->resize(size);
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    (*symbols)[at] = {id_of(at), i - 1, i + 1 < count ? i + 1 : -1};
  }
}

size_t position_of(uint64_t order) { return static_cast<size_t>(order & 0xFFFFFFFFu); }

}  // namespace

void Bpe::push_candidate(BpeScratch* scratch, int32_t left) const {
  const auto& symbols = scratch->symbols_;
  const auto& symbol = symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const auto merge = merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
  if (merge.rank < 0) return;
  const uint64_t order =
      uint64_t{static_cast<uint32_t>(merge.rank)} << 32 | static_cast<uint32_t>(left);
  scratch->heap_.push_back({order, merge.merged});
}

void Bpe::fill(std::string_view word, BpeScratch* scratch) const {
  scratch->heap_.clear();
  if (symbols_.by_character()) {
    auto& first = scratch->first_;
    first.clear();
    symbols_.append(word, &first);
    link(first.size(), [&](size_t i) { return first[i]; }, &scratch->symbols_);
  } else {
    link(word.size(), [&](size_t i) { return symbols_.of_byte(word[i]); }, &scratch->symbols_);
  }
  const auto size = static_cast<int32_t>(scratch->symbols_.size());
  for (int32_t i = 0; i + 1 < size; ++i) push_candidate(scratch, i);
  std::make_heap(scratch->heap_.begin(), scratch->heap_.end());
}

// Symbols only grow: a candidate is outdated exactly if the pair at its position no longer merges
// into the same token.
bool Bpe::is_current(const BpeScratch& scratch, const BpeScratch::Candidate& candidate) const {
  const auto& left = scratch.symbols_[position_of(candidate.order)];
  if (left.id == kRemoved || left.next < 0) return false;
  const auto merge = merges_.find(left.id, scratch.symbols_[static_cast<size_t>(left.next)].id);
  return merge.merged == candidate.merged;
}

void Bpe::merge_all(BpeScratch* scratch) const {
  auto& heap = scratch->heap_;
  auto& symbols = scratch->symbols_;
  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    push_candidate(scratch, left);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    const BpeScratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    if (!is_current(*scratch, best)) continue;
    const size_t position = position_of(best.order);
    auto& left = symbols[position];
    auto& right = symbols[static_cast<size_t>(left.next)];
    left.id = best.merged;
    left.next = right.next;
    right.id = kRemoved;
    const auto at = static_cast<int32_t>(position);
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    if (left.previous >= 0) push(left.previous);
    push(at);
  }
}

void Bpe::encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  fill(word, scratch);
  merge_all(scratch);
  for (const auto& symbol : scratch->symbols_) {
    if (symbol.id != kRemoved) ids->push_back(symbol.id);
  }
}

}  // namespace wideep::tokenizer
