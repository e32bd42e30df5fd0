// SPDX-License-Identifier: Apache-2.0
//
// A step has three parts. expand(): items of the state and of all that they call before a byte,
// callers first, so that a frame is made once with all its returns. find_next(): items whose edges
// take the byte. settle(): where a rule has ended, return to its callers, and to theirs.
//
// States and frames are found by content, so that equal ones are one. Order is by hashes of
// contents, not by numbers, which depend on what was asked before: with the bound on items the
// order decides which are dropped.
//
// A loop is an item whose frame counts; beyond what a loop needs nothing is counted if it has no
// upper bound, so that its states stay finite. A call at the end of a rule returns to the callers
// of that rule, as tail calls do.
#include "grammar/automaton.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace wideep::grammar {
namespace {

constexpr size_t kMaxExpanded = 8 * Automaton::kMaxItems;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

}  // namespace

Automaton::Automaton(Grammar grammar)
    : grammar_(std::move(grammar)), num_rule_states_(grammar_.num_states()) {
  find_classes();
  whole_frame_ = frame({.kind = Frame::Kind::kWhole});
  open_frame_ = frame({.kind = Frame::Kind::kOpen});
  number_of({});  // kDead
  start_ = number_of({.items = {{grammar_.rules[0].first_state, whole_frame_}},
                      .accepts = grammar_.matches_empty != 0});
}

void Automaton::find_classes() {
  std::array<bool, 257> begins = {};
  begins[0] = true;
  for (const Grammar::Edge& edge : grammar_.edges) {
    begins[edge.first] = true;
    begins[static_cast<size_t>(edge.last) + 1] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    num_classes_ += begins[byte] ? 1 : 0;
    classes_[byte] = static_cast<uint8_t>(num_classes_ - 1);
  }
}

// By what frames are, not by their numbers: these depend on what was asked before.
bool Automaton::before(const Item& a, const Item& b) const {
  if (a.state != b.state) return a.state < b.state;
  const uint64_t hash_a = frames_[a.frame].hash, hash_b = frames_[b.frame].hash;
  return hash_a != hash_b ? hash_a < hash_b : a.frame < b.frame;
}

uint32_t Automaton::frame(Frame frame) {
  const auto order = [this](const Item& a, const Item& b) { return before(a, b); };
  std::ranges::sort(frame.returns, order);
  frame.returns.erase(std::unique(frame.returns.begin(), frame.returns.end()), frame.returns.end());
  uint64_t hash = mixed(static_cast<uint64_t>(frame.kind), frame.callee);
  hash = mixed(hash, static_cast<uint64_t>(frame.count));
  for (const Item& each : frame.returns) {
    hash = mixed(mixed(hash, each.state), frames_[each.frame].hash);
  }
  frame.hash = hash;
  for (const Item& each : frame.returns) {
    // Within a repetition, one more has begun than have ended.
    const bool is_open = frames_[each.frame].kind == Frame::Kind::kOpen && is_loop(each.state);
    const int32_t here = begun(each) + (is_open ? 1 : 0);
    frame.begun = &each == frame.returns.data() ? here : std::min(frame.begun, here);
  }
  const auto [begin, end] = frame_numbers_.equal_range(hash);
  for (auto each = begin; each != end; ++each) {
    const Frame& other = frames_[each->second];
    if (other.kind == frame.kind && other.callee == frame.callee && other.count == frame.count &&
        other.returns == frame.returns) {
      return each->second;
    }
  }
  const auto number = static_cast<uint32_t>(frames_.size());
  bytes_ += sizeof(Frame) + frame.returns.size() * sizeof(Item) + 4 * sizeof(uint64_t);
  frames_.push_back(std::move(frame));
  frame_numbers_.emplace(hash, number);
  return number;
}

Automaton::State Automaton::number_of(Arrivals arrivals) {
  std::vector<Item>& items = arrivals.items;
  const auto order = [this](const Item& a, const Item& b) { return before(a, b); };
  std::ranges::sort(items, order);
  items.erase(std::unique(items.begin(), items.end()), items.end());
  if (items.size() > kMaxItems) items.resize(kMaxItems);
  std::ranges::sort(arrivals.leaves);
  arrivals.leaves.erase(std::unique(arrivals.leaves.begin(), arrivals.leaves.end()),
                        arrivals.leaves.end());
  uint64_t hash = arrivals.accepts ? 1u : 0u;
  for (const int32_t each : arrivals.leaves) hash = mixed(hash, static_cast<uint64_t>(each) + 2);
  for (const Item& each : items) hash = mixed(mixed(hash, each.state), each.frame);
  const auto [begin, end] = state_numbers_.equal_range(hash);
  for (auto each = begin; each != end; ++each) {
    const Data& other = data_of(each->second);
    if (other.accepts == arrivals.accepts && other.leaves == arrivals.leaves &&
        other.kernel == items) {
      return each->second;
    }
  }
  const auto number = static_cast<State>(states_.size());
  bytes_ += sizeof(Data) + 2 * items.size() * sizeof(Item) + num_classes_ * sizeof(State) +
            4 * sizeof(uint64_t);
  const bool is_dead = items.empty();  // a whole text that nothing may follow leads nowhere too
  states_.push_back({.kernel = std::move(items),
                     .expanded = {},
                     .is_expanded = false,
                     .accepts = arrivals.accepts,
                     .leaves = std::move(arrivals.leaves)});
  next_.resize(states_.size() * num_classes_, is_dead ? kDead : kUnknown);
  state_numbers_.emplace(hash, number);
  return number;
}

Automaton::State Automaton::find_next(State from, uint8_t byte) {
  if (!data_of(from).is_expanded) expand(from);
  Arrivals arrivals;
  for (const Item& item : data_of(from).expanded) {
    const Grammar::Edge* const edges = grammar_.edges.data();
    const Grammar::Edge* const begin = edges + grammar_.states[item.state].first_edge;
    const Grammar::Edge* const end = edges + grammar_.states[item.state + 1].first_edge;
    const Grammar::Edge* const found = std::lower_bound(
        begin, end, byte,
        [](const Grammar::Edge& edge, uint8_t value) { return edge.last < value; });
    if (found != end && found->first <= byte) arrive({found->target, item.frame}, &arrivals);
  }
  settle(&arrivals);
  const State to = number_of(std::move(arrivals));
  next_[row_of(from) + classes_[byte]] = to;
  return to;
}

// ---- ends of rules ----

bool Automaton::only_ends(uint32_t state) const {
  return grammar_.states[state].first_edge == grammar_.states[state + 1].first_edge &&
         grammar_.states[state].first_call == grammar_.states[state + 1].first_call;
}

void Automaton::arrive(Item item, Arrivals* arrivals) {
  if (!only_ends(item.state)) arrivals->items.push_back(item);
  if (grammar_.states[item.state].accepts != 0) leave(item.frame, arrivals);
}

void Automaton::leave(uint32_t number, Arrivals* arrivals) {
  const Frame& frame = frames_[number];
  arrivals->accepts |= frame.kind == Frame::Kind::kWhole;
  if (frame.kind == Frame::Kind::kOpen) arrivals->leaves.push_back(frame.count);
  arrivals->open.insert(arrivals->open.end(), frame.returns.begin(), frame.returns.end());
}

// Returns to callers, and to theirs where they end with the call. Each item once.
void Automaton::settle(Arrivals* arrivals) {
  std::unordered_map<uint64_t, bool> seen;
  const auto is_new = [&](const Item& item) {
    return seen.emplace(static_cast<uint64_t>(item.state) << 32 | item.frame, true).second;
  };
  constexpr size_t kMaxReturns = 16 * kMaxItems;
  while (!arrivals->open.empty() && seen.size() < kMaxReturns) {
    const Item item = arrivals->open.back();
    arrivals->open.pop_back();
    if (!is_new(item)) continue;
    is_loop(item.state) ? repeat(item, arrivals) : arrive(item, arrivals);
  }
}

// A repetition of the loop has ended.
void Automaton::repeat(Item item, Arrivals* arrivals) {
  const Grammar::Loop& loop = loop_of(item.state);
  Frame next = frames_[item.frame];
  const bool is_open = next.kind == Frame::Kind::kOpen;
  // Beyond what is needed nothing has to be counted if there may be any number.
  const bool counts = is_open || loop.max != kNoMax || next.count < loop.min;
  if (counts) ++next.count;
  const int32_t count = next.count;
  const uint32_t number = counts ? frame(std::move(next)) : item.frame;
  if (is_open || loop.max == kNoMax || count < loop.max) {
    arrivals->items.push_back({item.state, number});
  }
  if (is_open || count >= loop.min) leave(number, arrivals);
}

// ---- beginnings of rules ----

// Callers come before what they call at the same place (Grammar::Rule::order), so that each frame
// is made when all its callers are known.
void Automaton::expand(State state) {
  const std::vector<Item> kernel = data_of(state).kernel;
  const auto num_rules = static_cast<uint32_t>(grammar_.rules.size());
  struct Called {
    uint32_t callee = 0;
    std::vector<Item> returns = {};
  };
  std::map<uint32_t, Called> called;  // by order
  const auto add = [&](uint32_t callee, Item returns_to) {
    const uint32_t order = callee < num_rules ? grammar_.rules[callee].order
                                              : grammar_.loops[callee - num_rules].order;
    Called& place = called[order];
    place.callee = callee;
    place.returns.push_back(returns_to);
  };
  // Where the caller's rule ends with the call, the callee returns to the caller's callers: rules
  // that end with themselves need no more frames than loops.
  const auto add_calls = [&](const Item& item) {
    if (is_loop(item.state)) return add(loop_of(item.state).rule, item);
    const uint32_t end = grammar_.states[item.state + 1].first_call;
    for (uint32_t i = grammar_.states[item.state].first_call; i < end; ++i) {
      const Grammar::Call& each = grammar_.calls[i];
      if (frames_[item.frame].kind != Frame::Kind::kCall || !only_ends(each.target)) {
        add(each.callee, {each.target, item.frame});
        continue;
      }
      for (const Item& returns_to : frames_[item.frame].returns) add(each.callee, returns_to);
    }
  };
  std::vector<Item> expanded;
  const auto add_item = [&](const Item& item) {
    if (!is_loop(item.state) &&
        grammar_.states[item.state].first_edge != grammar_.states[item.state + 1].first_edge) {
      expanded.push_back(item);
    }
    add_calls(item);
  };
  for (const Item& item : kernel) add_item(item);
  while (!called.empty() && expanded.size() < kMaxExpanded) {
    auto first = called.extract(called.begin());
    const uint32_t callee = first.mapped().callee;
    const uint32_t begun = frame({.callee = callee, .returns = std::move(first.mapped().returns)});
    add_item(callee < num_rules ? Item{grammar_.rules[callee].first_state, begun}
                                : Item{num_rule_states_ + (callee - num_rules), begun});
  }
  Data& data = states_[static_cast<size_t>(state)];
  bytes_ += expanded.size() * sizeof(Item);
  data.expanded = std::move(expanded);
  data.is_expanded = true;
}

// ---- parts ----

Automaton::Within Automaton::within(Item item) const {
  const bool is_of_loop = is_loop(item.state);
  const uint32_t rule = is_of_loop ? loop_of(item.state).rule : grammar_.states[item.state].rule;
  const Grammar::Rule& found = grammar_.rules[rule];
  return {.rule = {found.identity[0], found.identity[1]},
          .place = is_of_loop ? 0 : item.state - found.first_state,
          .is_loop = is_of_loop ? 1 : 0};
}

Automaton::Repeats Automaton::repeats(Item item) const {
  if (!is_loop(item.state)) return {};
  const Grammar::Loop& loop = loop_of(item.state);
  const int32_t count = frames_[item.frame].count;
  return {.min = std::max(loop.min - count, 0),
          .max = loop.max == kNoMax ? kNoMax : loop.max - count};
}

Automaton::State Automaton::open(Item item) {
  if (!is_loop(item.state)) return number_of({.items = {{item.state, open_frame_}}});
  const uint32_t callee = frames_[item.frame].callee;
  const uint32_t number = frame({.kind = Frame::Kind::kOpen, .callee = callee});
  return number_of({.items = {{item.state, number}}});
}

int32_t Automaton::repeats_begun(State state) const {
  const Data& data = data_of(state);
  int32_t min = data.leaves.empty() ? std::numeric_limits<int32_t>::max() : data.leaves.front();
  for (const Item& each : data.kernel) min = std::min(min, begun(each));
  return min;
}

Automaton::State Automaton::behind(Item item) {
  Arrivals arrivals;
  leave(item.frame, &arrivals);
  settle(&arrivals);
  return number_of(std::move(arrivals));
}

}  // namespace wideep::grammar
