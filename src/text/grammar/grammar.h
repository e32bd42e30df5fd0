// SPDX-License-Identifier: Apache-2.0
//
// Rules as tables: what an answer may be, as it travels with the request to the ranks that sample
// it. Made from Rules by build_grammar(), followed byte by byte by an Automaton.
//
// Each rule is a deterministic automaton over bytes and calls. No rule has a call that could match
// the empty text (where a rule can, its callers also have the way around it), no rule calls itself
// before a byte, and from every state the end of the rule can be reached.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"
#include "wideep/status.h"

namespace wideep::grammar {

struct Grammar {
  struct Rule {
    uint32_t first_state = 0;  // where it starts; its states follow each other
    uint32_t order = 0;        // callees that come before a byte have larger ones, loops too
    // Equal for rules of any two grammars that match the same texts in the same way, state by
    // state; practically never equal for others.
    uint64_t identity[2] = {};
  };
  // A rule several times, as many times as are counted.
  struct Loop {
    uint32_t rule = 0;
    int32_t min = 0, max = kNoMax;
    uint32_t order = 0;
  };
  struct State {
    uint32_t first_edge = 0, first_call = 0;  // up to those of the next state
    uint32_t rule = 0;
    uint32_t accepts = 0;  // the rule may end here
  };
  struct Edge {  // in the order of `first`; those of a state are disjoint
    uint8_t first = 0, last = 0;
    uint16_t unused = 0;
    uint32_t target = 0;
  };
  struct Call {
    uint32_t callee = 0;  // a rule; or a loop: rules.size() and more
    uint32_t target = 0;
  };
  std::vector<Rule> rules;  // [0] is all of the answer
  std::vector<Loop> loops;
  std::vector<State> states;  // and one more, whose edges and calls are none
  std::vector<Edge> edges;
  std::vector<Call> calls;
  uint32_t matches_empty = 0;  // the answer may be empty

  uint32_t num_states() const { return static_cast<uint32_t>(states.size()) - 1; }

  // Between processes of one build on one machine.
  std::string encode() const;
  static Grammar decode(std::string_view bytes);
};

// What building may take, so that it is bounded in time and memory whatever the rules are.
struct BuildLimits {
  size_t states = size_t{1} << 17;  // of the grammar; twice as many on the way to it
  size_t steps = size_t{1} << 21;   // members of the sets that become states: a tenth of a second
};

// Errors (invalid input), which name the rule: no text matches `root`; a rule calls itself before
// anything else; a rule that is not defined; the limits are exceeded.
Result<Grammar> build_grammar(const Rules& rules, int root, const BuildLimits& limits = {});

}  // namespace wideep::grammar
