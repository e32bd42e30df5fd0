// SPDX-License-Identifier: Apache-2.0
//
// For tests: the slow way. Reads expressions as they are written: the set of ends of the parts of a
// text that match, and whether the text is the beginning of one that does. No automaton, no tables.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "grammar/constraint_testing.h"
#include "grammar/expression.h"

namespace wideep::grammar {

// REQUIRES: no rule calls itself before a byte; every part of every rule matches something.
class SlowMatcher {
 public:
  SlowMatcher(const Rules& rules, int root, std::string_view text)
      : rules_(rules), root_(root), text_(text) {}

  Match match() {
    const std::set<size_t> ends = ends_of_rule(root_, 0);
    if (ends.contains(text_.size())) return Match::kWhole;
    return runs_out_ ? Match::kBegins : Match::kNone;
  }

 private:
  using Ends = std::set<size_t>;

  Ends ends_of_rule(int rule, size_t at) {
    const auto known = known_.find({rule, at});
    if (known != known_.end()) return known->second;
    Ends ends = ends_of(*rules_[rule].body, at);
    known_[{rule, at}] = ends;
    return ends;
  }

  // The text ends before this part does.
  void note_end(size_t at) { runs_out_ |= at == text_.size(); }

  Ends ends_of(const ExpressionNode& node, size_t at) {
    using Kind = ExpressionNode::Kind;
    switch (node.kind) {
      case Kind::kText:
        for (const char byte : node.text) {
          if (at == text_.size()) note_end(at);
          if (at == text_.size() || text_[at] != byte) return {};
          ++at;
        }
        return {at};
      case Kind::kByte: {
        note_end(at);
        if (at == text_.size()) return {};
        const auto byte = static_cast<uint8_t>(text_[at]);
        return byte >= node.first && byte <= node.last ? Ends{at + 1} : Ends{};
      }
      case Kind::kSequence: {
        Ends ends = {at};
        for (const Expression& each : node.parts) ends = after(ends, *each);
        return ends;
      }
      case Kind::kChoice: {
        Ends ends;
        for (const Expression& each : node.parts) ends.merge(ends_of(*each, at));
        return ends;
      }
      case Kind::kRepeat:
        return ends_of_repeat(node, at);
      case Kind::kCall:
        return ends_of_rule(node.rule, at);
      case Kind::kWithout:
        return ends_without(node.text, at);
      case Kind::kBoth:
      case Kind::kExcept: {  // for whole texts: which beginnings go on is not looked at
        const Ends first = ends_of(*node.parts[0], at), second = ends_of(*node.parts[1], at);
        Ends ends;
        for (const size_t end : first) {
          if (second.contains(end) == (node.kind == Kind::kBoth)) ends.insert(end);
        }
        return ends;
      }
    }
    return {};
  }

  Ends after(const Ends& begins, const ExpressionNode& node) {
    Ends ends;
    for (const size_t at : begins) ends.merge(ends_of(node, at));
    return ends;
  }

  Ends ends_of_repeat(const ExpressionNode& node, size_t at) {
    Ends now = {at}, all;
    for (int i = 0; i < node.min; ++i) {
      Ends next = after(now, *node.parts.front());
      if (next == now) break;  // of empty ones
      now = std::move(next);
    }
    all = now;
    for (int i = node.min; node.max == kNoMax || i < node.max; ++i) {
      Ends next = after(now, *node.parts.front());
      const size_t before = all.size();
      all.insert(next.begin(), next.end());
      if (next.empty() || (all.size() == before &&
                           std::includes(all.begin(), all.end(), next.begin(), next.end()) &&
                           i - node.min > static_cast<int>(text_.size()))) {
        break;
      }
      now = std::move(next);
    }
    return all;
  }

  // Texts of tests are ASCII here.
  Ends ends_without(const std::string& end, size_t at) {
    Ends ends;
    for (size_t to = at; to <= text_.size(); ++to) {
      if (text_.substr(at, to - at).find(end) != std::string_view::npos) break;
      ends.insert(to);
      note_end(to);
    }
    return ends;
  }

  const Rules& rules_;
  const int root_;
  const std::string_view text_;
  std::map<std::pair<int, size_t>, Ends> known_;
  bool runs_out_ = false;
};

}  // namespace wideep::grammar
