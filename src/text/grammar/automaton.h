// SPDX-License-Identifier: Apache-2.0
//
// Follows a grammar byte by byte: a state is everything that the bytes so far may have been. States
// are found as they are needed, numbered, and kept with where each byte leads, so that most steps
// are the look-up of a number.
//
//   kernel of a state:   items (state of a rule, frame): one rule that has taken a byte or more
//   frame:               a call: of which rule, and where it returns to: items of its callers
//
// Callers that call a rule at the same place share its frame, as in the graph-structured stacks of
// generalised parsing (Tomita 1985), so that a state is small even where very many derivations are
// possible. Of a state with more items than kMaxItems the last ones are dropped: the answer is
// then one of fewer texts, all of which match. What is dropped depends on the grammar and the bytes
// alone, not on what was asked before.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace wideep::grammar {

class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = 0;  // no text begins so
  static constexpr size_t kMaxItems = 1024;

  explicit Automaton(Grammar grammar);

  State start() const { return start_; }
  State next(State from, uint8_t byte) {
    const State known = next_[row_of(from) + classes_[byte]];
    return known != kUnknown ? known : find_next(from, byte);
  }
  // The bytes so far are a whole text.
  bool accepts(State state) const { return data_of(state).accepts; }

  // ---- a part of a state, without what surrounds it (grammar/token_masks.h) ----

  struct Item {
    uint32_t state = 0;  // of a rule; or a loop: num_states() and more
    uint32_t frame = 0;
    bool operator==(const Item&) const = default;
  };
  // The kernel. Valid until the next call of another function.
  std::span<const Item> items(State state) const { return data_of(state).kernel; }
  // What the item may take within its frame, but for how many repetitions.
  struct Within {
    uint64_t rule[2] = {};  // Grammar::Rule::identity, of a loop that of its rule
    uint32_t place = 0;     // state of the rule, counted from its first one
    int32_t is_loop = 0;
    auto operator<=>(const Within&) const = default;
  };
  Within within(Item item) const;
  // Repetitions that an item of a loop still takes.
  struct Repeats {
    int32_t min = 0, max = kNoMax;
  };
  Repeats repeats(Item item) const;
  // A state with that item alone, of which only the frame is known, but not where it returns to;
  // of a loop, as if it took any number of repetitions …
  State open(Item item);
  // … so that the bytes behind the frame's end are not found. This says where that is: after how
  // many repetitions, in order; 0 where it is no loop; none: not here.
  std::span<const int32_t> leaves(State state) const { return data_of(state).leaves; }
  // As many have to begin so that the state is reached.
  int32_t repeats_begun(State state) const;
  // The state behind the end of the item's frame.
  State behind(Item item);

  // ---- size ----

  size_t bytes() const { return bytes_; }
  int num_states() const { return static_cast<int>(states_.size()); }

 private:
  static constexpr State kUnknown = -1;
  struct Frame {
    enum class Kind : uint8_t { kCall, kWhole, kOpen };  // kWhole: the answer
    Kind kind = Kind::kCall;
    uint32_t callee = 0;             // as Grammar::Call
    int32_t count = 0;               // of a loop: repetitions that have ended
    std::vector<Item> returns = {};  // sorted
    uint64_t hash = 0;               // of all that, whatever its number is
    int32_t begun = 0;               // repetitions of the loop of the kOpen frame around it
  };
  struct Data {
    std::vector<Item> kernel;    // sorted
    std::vector<Item> expanded;  // that take bytes; with those of frames that begin here
    bool is_expanded = false;
    bool accepts = false;
    std::vector<int32_t> leaves = {};
  };
  // Where a byte leads, before it has a number.
  struct Arrivals {
    std::vector<Item> items;
    bool accepts = false;
    std::vector<int32_t> leaves = {};
    std::vector<Item> open = {};
  };
  bool is_loop(uint32_t state) const { return state >= num_rule_states_; }
  const Grammar::Loop& loop_of(uint32_t state) const {
    return grammar_.loops[state - num_rule_states_];
  }
  size_t row_of(State state) const { return static_cast<size_t>(state) * num_classes_; }
  const Data& data_of(State state) const { return states_[static_cast<size_t>(state)]; }

  void find_classes();
  bool before(const Item& a, const Item& b) const;
  // Repetitions of the open loop that have to begin for the item.
  int32_t begun(Item item) const {
    const Frame& frame = frames_[item.frame];
    return frame.kind == Frame::Kind::kOpen ? frame.count : frame.begun;
  }
  uint32_t frame(Frame frame);
  State number_of(Arrivals arrivals);
  State find_next(State from, uint8_t byte);
  bool only_ends(uint32_t state) const;  // nothing may follow it in its rule
  void arrive(Item item, Arrivals* arrivals);
  void leave(uint32_t frame, Arrivals* arrivals);
  void settle(Arrivals* arrivals);
  void repeat(Item item, Arrivals* arrivals);
  void expand(State state);

  Grammar grammar_;
  uint32_t num_rule_states_;
  uint32_t whole_frame_ = 0, open_frame_ = 0;
  uint8_t classes_[256] = {};  // bytes that no rule tells apart
  size_t num_classes_ = 0;
  std::vector<Frame> frames_;
  std::unordered_multimap<uint64_t, uint32_t> frame_numbers_;
  std::vector<Data> states_;
  std::vector<State> next_;  // [states][classes]
  std::unordered_multimap<uint64_t, State> state_numbers_;
  State start_ = kDead;
  size_t bytes_ = 0;
};

}  // namespace wideep::grammar
