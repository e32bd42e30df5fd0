// SPDX-License-Identifier: Apache-2.0
//
// For tests: whole texts and beginnings of texts of a grammar, by its automaton.
#pragma once

#include <string>
#include <string_view>

#include "grammar/automaton.h"

namespace wideep::grammar {

enum class Match { kNone, kBegins, kWhole };  // kBegins: more has to follow

inline Match match(Automaton& automaton, std::string_view text) {
  Automaton::State state = automaton.start();
  for (const char byte : text) {
    state = automaton.next(state, static_cast<uint8_t>(byte));
    if (state == Automaton::kDead) return Match::kNone;
  }
  return automaton.accepts(state) ? Match::kWhole : Match::kBegins;
}

inline Match match(const Grammar& grammar, std::string_view text) {
  Automaton automaton(grammar);
  return match(automaton, text);
}

}  // namespace wideep::grammar
