// SPDX-License-Identifier: Apache-2.0
//
// append() is the textbook's step: a new state, edges to it from all ends of the text that do not
// have one, and a clone where an edge leads to a state with longer strings. With several texts the
// edge may be there already; exact_end() then finds or clones its state.
//
// Edges lie in one array and are found by (state, token) in one open hash table. A table for each
// state would cost memory where there is one edge, and a list alone would be slow where there are
// as many as tokens, at the root. The edges of a state are linked too, because a clone copies them.
#include "engine/speculation/suffix_automaton.h"

#include <algorithm>

namespace wideep::engine {
namespace {

constexpr int32_t kNone = -1;

size_t slot_of(int32_t from, int32_t token, size_t size) {
  uint64_t x =
      static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(token);
  x *= 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(x >> 32) & (size - 1);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton() : states_(1), table_(64, kNone) {}

size_t SuffixAutomaton::bytes() const {
  return tokens_.size() * sizeof(int32_t) + states_.size() * sizeof(Node) +
         edges_.size() * sizeof(Edge) + table_.size() * sizeof(int32_t);
}

void SuffixAutomaton::begin_text() {
  tokens_.push_back(kEndOfText);
  last_ = kRoot;
}

std::span<const int32_t> SuffixAutomaton::continuation(State state, int max) const {
  const auto from = static_cast<size_t>(states_[state].place) + 1;
  const size_t count = std::min(tokens_.size() - from, static_cast<size_t>(max));
  const std::span<const int32_t> all = std::span(tokens_).subspan(from, count);
  return all.first(static_cast<size_t>(std::ranges::find(all, kEndOfText) - all.begin()));
}

int32_t SuffixAutomaton::find_edge(State from, int32_t token) const {
  size_t slot = slot_of(from, token, table_.size());
  while (table_[slot] != kNone) {
    const Edge& edge = edges_[static_cast<size_t>(table_[slot])];
    if (edge.from == from && edge.token == token) return table_[slot];
    slot = (slot + 1) & (table_.size() - 1);
  }
  return kNone;
}

void SuffixAutomaton::expect(State from, int32_t token, bool late) const {
  const int32_t* slot = &table_[slot_of(from, token, table_.size())];
  if (!late) {
    __builtin_prefetch(slot);
    __builtin_prefetch(&states_[from]);
  } else if (*slot != kNone) {
    __builtin_prefetch(&edges_[static_cast<size_t>(*slot)]);
  }
}

void SuffixAutomaton::grow_table() {
  table_.assign(table_.size() * 2, kNone);
  for (size_t i = 0; i < edges_.size(); ++i) {
    size_t slot = slot_of(edges_[i].from, edges_[i].token, table_.size());
    while (table_[slot] != kNone) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = static_cast<int32_t>(i);
  }
}

void SuffixAutomaton::add_edge(State from, int32_t token, State to) {
  if (edges_.size() * 2 >= table_.size()) grow_table();
  size_t slot = slot_of(from, token, table_.size());
  while (table_[slot] != kNone) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = static_cast<int32_t>(edges_.size());
  edges_.push_back({token, to, from, states_[from].first_edge});
  states_[from].first_edge = table_[slot];
}

// A state for the strings of `original` up to `length` tokens, which now occur at more places.
SuffixAutomaton::State SuffixAutomaton::clone(State original, int32_t length) {
  const auto copy = static_cast<State>(states_.size());
  states_.push_back(states_[original]);
  states_[copy].length = length;
  states_[copy].first_edge = kNone;
  for (int32_t each = states_[original].first_edge; each != kNone;) {
    const Edge edge = edges_[static_cast<size_t>(each)];
    add_edge(copy, edge.token, edge.to);
    each = edge.next;
  }
  states_[original].link = copy;
  return copy;
}

// All edges from `from` and its ends by this token that lead to `to` lead to `copy` from now on.
void SuffixAutomaton::redirect(State from, int32_t token, State to, State copy) {
  for (State each = from; each != kNone; each = states_[each].link) {
    const int32_t edge = find_edge(each, token);
    if (edge == kNone || edges_[static_cast<size_t>(edge)].to != to) return;
    edges_[static_cast<size_t>(edge)].to = copy;
  }
}

// The state of the strings that the edge leads to from `from`, but of none that are longer.
SuffixAutomaton::State SuffixAutomaton::exact_end(State from, const Edge& edge) {
  const State to = edge.to;
  const int32_t length = states_[from].length + 1, token = edge.token;
  if (states_[to].length == length) return to;
  const State copy = clone(to, length);
  redirect(from, token, to, copy);
  return copy;
}

void SuffixAutomaton::append(int32_t token) {
  const auto place = static_cast<int32_t>(tokens_.size());
  // The longest repeated end has occurred here, too.
  if (const State known = states_[last_].link; known > kRoot) states_[known].place = place - 1;
  tokens_.push_back(token);
  // Another text may have gone this way already.
  if (const int32_t known = find_edge(last_, token); known != kNone) {
    last_ = exact_end(last_, edges_[static_cast<size_t>(known)]);
    states_[last_].place = place;
    return;
  }
  const auto added = static_cast<State>(states_.size());
  states_.push_back({.length = states_[last_].length + 1, .link = kRoot, .place = place});
  for (State each = last_; each != kNone; each = states_[each].link) {
    const int32_t edge = find_edge(each, token);
    if (edge != kNone) {
      const State end = exact_end(each, edges_[static_cast<size_t>(edge)]);
      states_[added].link = end;
      break;
    }
    add_edge(each, token, added);
  }
  last_ = added;
}

void SuffixAutomaton::advance(Cursor& cursor, int32_t token) const {
  while (true) {
    const int32_t edge = find_edge(cursor.state, token);
    if (edge != kNone) {
      cursor.state = edges_[static_cast<size_t>(edge)].to;
      ++cursor.length;
      return;
    }
    if (cursor.state == kRoot) {
      cursor.length = 0;
      return;
    }
    cursor.state = states_[cursor.state].link;
    cursor.length = states_[cursor.state].length;
  }
}

}  // namespace wideep::engine
