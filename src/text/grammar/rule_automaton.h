// SPDX-License-Identifier: Apache-2.0
//
// One rule as a deterministic automaton, by the construction of sets of states over Thompson's
// automaton of its expression. Internal to build.cc.
//
// Thread safety: for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "grammar/expression.h"
#include "grammar/grammar.h"
#include "wideep/status.h"

namespace wideep::grammar {

// What was spent on all rules of a grammar. Everything that could grow beyond what its text
// suggests counts.
struct BuildWork {
  BuildLimits limits;
  size_t states = 0;  // before and after the sets were built
  size_t steps = 0;   // members of these sets
  bool exceeds() const { return states > 2 * limits.states || steps > limits.steps; }
};

struct RuleAutomaton {
  struct Edge {
    uint8_t first = 0, last = 0;
    int target = 0;
  };
  struct Call {
    int callee = 0;
    int target = 0;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<Call> calls;
    bool accepts = false;
  };
  std::vector<State> states;  // [0] is where it starts; the end can be reached from all of them
};

// What the construction asks about calls.
struct CallNames {
  // The number of a call of a rule; negative: no text matches the rule.
  std::function<int(int rule)> rule;
  // The same of a repeated part, which becomes a rule of its own if it is none.
  std::function<int(const Expression& part, int min, int max)> loop;
  std::function<bool(const Expression&)> matches_empty;
};

// Calls never stand for the empty text: where a callee may be empty there is a way around the call.
// Errors (invalid input): work exceeds what is allowed.
Result<RuleAutomaton> build_rule(const Expression& body, const CallNames& names, BuildWork* work);

}  // namespace wideep::grammar
