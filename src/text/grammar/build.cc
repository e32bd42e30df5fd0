// SPDX-License-Identifier: Apache-2.0
//
// RuleFacts finds by repetition until nothing changes which rules match some text and which match
// the empty one; parts that match nothing are left out. Builder then makes tables rule by rule,
// adding the rules that it meets on the way.
//
// Two numbers of a rule follow. The order puts callers before what they call before any byte, which
// Automaton relies on; where there is none, the grammar is left-recursive and is refused. The
// identity is a hash of the rule's table and of what it calls, so that equal rules of different
// grammars share what was found about them (token_masks.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/try.h"
#include "grammar/grammar.h"
#include "grammar/rule_automaton.h"

namespace wideep::grammar {
namespace {

using Kind = ExpressionNode::Kind;

size_t index(int value) { return static_cast<size_t>(value); }

void add_callees(const Expression& part, std::vector<int>* callees) {
  if (part->kind == Kind::kCall) callees->push_back(part->rule);
  for (const Expression& each : part->parts) add_callees(each, callees);
}

// ---- what rules can match ----

class RuleFacts {
 public:
  explicit RuleFacts(const Rules& rules)
      : rules_(rules), empty_(index(rules.size()), false), some_(index(rules.size()), false) {}

  // Errors (invalid input): a rule that is not defined; more than `max_steps`.
  Status find(int root, size_t max_steps) {
    WIDEEP_TRY(find_order(root));
    size_t steps = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const int rule : order_) {
        const Expression& body = rules_[rule].body;
        if (!some_[index(rule)] && matches_some(body)) some_[index(rule)] = changed = true;
        if (!empty_[index(rule)] && matches_empty(body)) empty_[index(rule)] = changed = true;
        steps += 1 + callees_[index(rule)].size();
      }
      if (steps > max_steps) return invalid_input("has too many rules that call each other");
    }
    return {};
  }

  bool matches_some(int rule) const { return some_[index(rule)]; }
  bool matches_some(const Expression& part) const {
    const ExpressionNode& node = *part;
    const auto of_part = [&](const Expression& each) { return matches_some(each); };
    switch (node.kind) {
      case Kind::kSequence:
        return std::ranges::all_of(node.parts, of_part);
      case Kind::kChoice:
        return std::ranges::any_of(node.parts, of_part);
      case Kind::kRepeat:
        return node.min == 0 || matches_some(node.parts.front());
      case Kind::kCall:
        return some_[index(node.rule)];
      default:
        return true;
    }
  }
  bool matches_empty(const Expression& part) const {
    const ExpressionNode& node = *part;
    const auto of_part = [&](const Expression& each) { return matches_empty(each); };
    switch (node.kind) {
      case Kind::kText:
        return node.text.empty();
      case Kind::kByte:
        return false;
      case Kind::kSequence:
        return std::ranges::all_of(node.parts, of_part);
      case Kind::kChoice:
        return std::ranges::any_of(node.parts, of_part);
      case Kind::kRepeat:
        return node.min == 0 || matches_empty(node.parts.front());
      case Kind::kCall:
        return empty_[index(node.rule)];
      case Kind::kWithout:
        return true;
      case Kind::kBoth:
        return std::ranges::all_of(node.parts, of_part);
      case Kind::kExcept:
        return matches_empty(node.parts[0]) && !matches_empty(node.parts[1]);
    }
    return false;
  }
  // The innermost rule that matches nothing.
  const std::string& culprit() const {
    for (const int rule : order_) {
      if (!some_[index(rule)]) return rules_[rule].name;
    }
    return rules_[order_.back()].name;
  }

 private:
  // Callees first, as far as that is possible.
  Status find_order(int root) {
    callees_.resize(index(rules_.size()));
    std::vector<std::pair<int, size_t>> path;
    std::vector<bool> known(index(rules_.size()), false);
    const auto enter = [&](int rule) -> Status {
      if (known[index(rule)]) return {};
      known[index(rule)] = true;
      if (rules_[rule].body == nullptr) {
        return invalid_input(fmt::format("rule '{}' is not defined", rules_[rule].name));
      }
      add_callees(rules_[rule].body, &callees_[index(rule)]);
      path.emplace_back(rule, 0);
      return {};
    };
    WIDEEP_TRY(enter(root));
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      const std::vector<int>& callees = callees_[index(rule)];
      if (next < callees.size()) {
        WIDEEP_TRY(enter(callees[next++]));
      } else {
        order_.push_back(rule);
        path.pop_back();
      }
    }
    return {};
  }

  const Rules& rules_;
  std::vector<bool> empty_, some_;
  std::vector<std::vector<int>> callees_;
  std::vector<int> order_;
};

// ---- tables ----

class Builder {
 public:
  Builder(const Rules& rules, const RuleFacts& facts, const BuildLimits& limits)
      : rules_(rules), facts_(facts), work_{.limits = limits} {}

  Result<Grammar> build(int root) {
    number_of(root);
    for (size_t next = 0; next < bodies_.size(); ++next) {
      const Expression body = bodies_[next];
      auto rule = build_rule(body, names_, &work_);
      if (!rule.ok()) return rule.status().at(quoted(next));
      // Whether two parts have a text in common (kBoth) shows here.
      const RuleAutomaton::State& start = rule->states.front();
      if (!start.accepts && start.edges.empty() && start.calls.empty()) {
        return invalid_input("no text matches it").at(quoted(next));
      }
      add_rule(next, *rule);
    }
    finish();
    WIDEEP_TRY(find_order());
    find_identities();
    grammar_.matches_empty = facts_.matches_empty(rules_[root].body) ? 1 : 0;
    return std::move(grammar_);
  }

 private:
  static constexpr int kLoopBit = 1 << 30;

  std::string quoted(size_t rule) const { return fmt::format("rule '{}'", names_of_[rule]); }

  int number_of(int rule) {
    if (!facts_.matches_some(rule)) return -1;
    const auto [found, is_new] = numbers_.try_emplace(rule, static_cast<int>(bodies_.size()));
    if (is_new) add_body(rules_[rule].body, rules_[rule].name);
    return found->second;
  }
  void add_body(const Expression& body, const std::string& name) {
    bodies_.push_back(body);
    names_of_.push_back(name);
  }

  int loop_of(const Expression& part, int min, int max) {
    if (!facts_.matches_some(part)) return -1;
    int rule = 0;
    if (part->kind == Kind::kCall) {
      rule = number_of(part->rule);
    } else {
      rule = static_cast<int>(bodies_.size());
      add_body(part, "repeated part");
    }
    const auto [found, is_new] =
        loops_.try_emplace({rule, min, max}, static_cast<int>(grammar_.loops.size()));
    if (is_new) {
      grammar_.loops.push_back({.rule = static_cast<uint32_t>(rule), .min = min, .max = max});
    }
    return kLoopBit | found->second;
  }

  void add_rule(size_t number, const RuleAutomaton& rule) {
    const auto first = static_cast<uint32_t>(grammar_.states.size());
    grammar_.rules.push_back({.first_state = first});
    for (const RuleAutomaton::State& state : rule.states) {
      grammar_.states.push_back({.first_edge = static_cast<uint32_t>(grammar_.edges.size()),
                                 .first_call = static_cast<uint32_t>(grammar_.calls.size()),
                                 .rule = static_cast<uint32_t>(number),
                                 .accepts = state.accepts ? 1u : 0u});
      for (const auto& edge : state.edges) {
        grammar_.edges.push_back({.first = edge.first,
                                  .last = edge.last,
                                  .target = first + static_cast<uint32_t>(edge.target)});
      }
      for (const auto& each : state.calls) {
        grammar_.calls.push_back({.callee = static_cast<uint32_t>(each.callee),
                                  .target = first + static_cast<uint32_t>(each.target)});
      }
    }
  }

  void finish() {
    const auto num_rules = static_cast<uint32_t>(grammar_.rules.size());
    for (Grammar::Call& each : grammar_.calls) {
      if ((each.callee & kLoopBit) != 0) each.callee = num_rules + (each.callee & ~kLoopBit);
    }
    grammar_.states.push_back({.first_edge = static_cast<uint32_t>(grammar_.edges.size()),
                               .first_call = static_cast<uint32_t>(grammar_.calls.size())});
  }

  size_t num_callees() const { return grammar_.rules.size() + grammar_.loops.size(); }

  // What a callee calls: where it starts, or anywhere in it.
  std::vector<uint32_t> calls_of(uint32_t callee, bool at_start) const {
    const auto num_rules = static_cast<uint32_t>(grammar_.rules.size());
    if (callee >= num_rules) return {grammar_.loops[callee - num_rules].rule};
    const uint32_t begin = grammar_.rules[callee].first_state;
    uint32_t end = begin + 1;
    if (!at_start) {
      end = callee + 1 < num_rules ? grammar_.rules[callee + 1].first_state : grammar_.num_states();
    }
    std::vector<uint32_t> callees;
    for (uint32_t i = grammar_.states[begin].first_call; i < grammar_.states[end].first_call; ++i) {
      callees.push_back(grammar_.calls[i].callee);
    }
    return callees;
  }

  // Callers get smaller numbers than what they call before a byte.
  Status find_order() {
    enum class Mark : uint8_t { kUnknown, kOnPath, kDone };
    std::vector<Mark> marks(num_callees(), Mark::kUnknown);
    auto next_order = static_cast<uint32_t>(num_callees());
    struct Place {
      uint32_t callee = 0;
      std::vector<uint32_t> calls = {};
      size_t next = 0;
    };
    for (uint32_t begin = 0; begin < marks.size(); ++begin) {
      if (marks[begin] != Mark::kUnknown) continue;
      std::vector<Place> path;
      const auto enter = [&](uint32_t callee) {
        marks[callee] = Mark::kOnPath;
        path.push_back({.callee = callee, .calls = calls_of(callee, true)});
      };
      enter(begin);
      while (!path.empty()) {
        Place& place = path.back();
        if (place.next < place.calls.size()) {
          const uint32_t callee = place.calls[place.next++];
          if (marks[callee] == Mark::kOnPath) return left_recursion(callee);
          if (marks[callee] == Mark::kUnknown) enter(callee);
          continue;
        }
        marks[place.callee] = Mark::kDone;
        order_of(place.callee) = --next_order;
        path.pop_back();
      }
    }
    return {};
  }
  uint32_t& order_of(uint32_t callee) {
    const size_t num_rules = grammar_.rules.size();
    return callee < num_rules ? grammar_.rules[callee].order
                              : grammar_.loops[callee - num_rules].order;
  }
  Status left_recursion(uint32_t callee) const {
    const size_t num_rules = grammar_.rules.size();
    if (callee >= num_rules) callee = grammar_.loops[callee - num_rules].rule;
    return invalid_input(fmt::format(
        "{} begins with itself (left recursion); write it as a repetition", quoted(callee)));
  }

  // From the tables of a rule and the identities of what it calls, callees first. Rules that call
  // themselves somewhere have no last callee: what they are follows from the whole grammar.
  void find_identities() {
    const auto num_rules = static_cast<uint32_t>(grammar_.rules.size());
    std::vector<size_t> waits_for(num_callees(), 0);
    std::vector<std::vector<uint32_t>> callers(num_callees());
    std::vector<uint32_t> ready;
    for (uint32_t callee = 0; callee < num_callees(); ++callee) {
      const std::vector<uint32_t> calls = calls_of(callee, false);
      waits_for[callee] = calls.size();
      for (const uint32_t each : calls) callers[each].push_back(callee);
      if (calls.empty()) ready.push_back(callee);
    }
    std::vector<bool> has(num_callees(), false);
    while (!ready.empty()) {
      const uint32_t callee = ready.back();
      ready.pop_back();
      has[callee] = true;
      if (callee < num_rules) set_identity(callee, described(callee));
      for (const uint32_t caller : callers[callee]) {
        if (--waits_for[caller] == 0) ready.push_back(caller);
      }
    }
    const std::string whole = grammar_.encode();
    const std::string hash = base::content_hash_hex(whole) + base::content_hash_hex(whole + "2");
    for (uint32_t rule = 0; rule < num_rules; ++rule) {
      if (!has[rule]) set_identity(rule, fmt::format("{} of {}", rule, hash));
    }
  }
  void set_identity(uint32_t rule, const std::string& description) {
    for (size_t i = 0; i < 2; ++i) {
      const std::string salted = description + (i == 0 ? "a" : "b");
      grammar_.rules[rule].identity[i] =
          base::content_hash(reinterpret_cast<const std::byte*>(salted.data()), salted.size());
    }
  }
  std::string described(uint32_t rule) const {
    const auto num_rules = static_cast<uint32_t>(grammar_.rules.size());
    std::string bytes;
    const auto put = [&](uint64_t value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    const uint32_t begin = grammar_.rules[rule].first_state;
    const uint32_t end =
        rule + 1 < num_rules ? grammar_.rules[rule + 1].first_state : grammar_.num_states();
    for (uint32_t at = begin; at < end; ++at) {
      const Grammar::State &state = grammar_.states[at], &next = grammar_.states[at + 1];
      put(state.accepts);
      put(next.first_edge - state.first_edge);
      for (uint32_t i = state.first_edge; i < next.first_edge; ++i) {
        const Grammar::Edge& edge = grammar_.edges[i];
        put(static_cast<uint64_t>(edge.first) << 8 | edge.last);
        put(edge.target - begin);
      }
      put(next.first_call - state.first_call);
      for (uint32_t i = state.first_call; i < next.first_call; ++i) {
        const uint32_t callee = grammar_.calls[i].callee;
        const bool is_loop = callee >= num_rules;
        const Grammar::Loop loop =
            is_loop ? grammar_.loops[callee - num_rules] : Grammar::Loop{.rule = callee};
        put(is_loop);
        put(grammar_.rules[loop.rule].identity[0]);
        put(grammar_.rules[loop.rule].identity[1]);
        put(static_cast<uint64_t>(static_cast<uint32_t>(loop.min)) << 32 |
            static_cast<uint32_t>(loop.max));
        put(grammar_.calls[i].target - begin);
      }
    }
    return bytes;
  }

  const Rules& rules_;
  const RuleFacts& facts_;
  BuildWork work_;
  std::map<int, int> numbers_;
  std::vector<Expression> bodies_;  // [rules of the grammar]
  std::vector<std::string> names_of_;
  std::map<std::tuple<int, int, int>, int> loops_;
  Grammar grammar_;
  const CallNames names_{
      .rule = [this](int rule) { return number_of(rule); },
      .loop = [this](const Expression& part, int min, int max) { return loop_of(part, min, max); },
      .matches_empty = [this](const Expression& part) { return facts_.matches_empty(part); }};
};

}  // namespace

Result<Grammar> build_grammar(const Rules& rules, int root, const BuildLimits& limits) {
  RuleFacts facts(rules);
  WIDEEP_TRY(facts.find(root, 8 * limits.steps));
  if (!facts.matches_some(root)) {
    return invalid_input(fmt::format("rule '{}': no text matches it", facts.culprit()));
  }
  return Builder(rules, facts, limits).build(root);
}

}  // namespace wideep::grammar
