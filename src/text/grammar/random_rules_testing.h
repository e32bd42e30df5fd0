// SPDX-License-Identifier: Apache-2.0
//
// For tests: random rules over a small alphabet, random texts and random vocabularies.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expression.h"

namespace wideep::grammar {

class RandomRules {
 public:
  explicit RandomRules(unsigned seed) : rng_(seed) {}

  // A few rules that call each other, each time behind a byte. Rule 0 is the answer.
  Rules make() {
    Rules rules;
    const int count = 1 + below(4);
    for (int i = 0; i < count; ++i) rules.add("r" + std::to_string(i));
    for (int i = 0; i < count; ++i) rules.define(i, expression(3, i, count));
    return rules;
  }

  std::string word(int max) {
    std::string text;
    for (int length = below(max + 1); length > 0; --length) text += letter();
    return text;
  }

  std::vector<std::string> vocabulary(int size) {
    std::vector<std::string> tokens;
    for (char c = 'a'; c < 'a' + kLetters; ++c) tokens.emplace_back(1, c);
    while (static_cast<int>(tokens.size()) < size) tokens.push_back(word(7));
    return tokens;
  }

  int below(int limit) { return static_cast<int>(rng_() % static_cast<unsigned>(limit)); }

 private:
  static constexpr int kLetters = 4;
  char letter() { return static_cast<char>('a' + below(kLetters)); }

  // rule: may be followed only by later rules, or by any rule behind a byte.
  Expression expression(int depth, int rule, int count) {
    const auto part = [&] { return expression(depth - 1, rule, count); };
    switch (depth == 0 ? below(3) : below(8)) {
      case 0:
        return text(word(3));
      case 1: {
        const char first = letter();
        const auto last = static_cast<char>(std::min<int>(first + below(2), 'a' + kLetters - 1));
        return byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
      }
      case 2:
        return sequence({text(std::string(1, letter())), optional(call(below(count)))});
      case 3:
        return sequence({part(), part()});
      case 4:
        return choice({part(), part(), text(word(2))});
      case 5: {
        const int min = below(3);
        return repeat(part(), min, below(2) == 0 ? kNoMax : min + below(90));
      }
      case 6:
        return rule + 1 < count ? call(rule + 1) : part();
      default:
        return sequence({part(), choice({part(), text("")})});
    }
  }

  std::mt19937 rng_;
};

}  // namespace wideep::grammar
