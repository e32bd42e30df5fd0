// SPDX-License-Identifier: Apache-2.0
//
// Expression → Thompson's automaton (NfaBuilder) → sets of its states (SetBuilder) → without states
// that lead nowhere (trim). Calls are edges with a number instead of a byte, so nothing of another
// rule is unfolded here.
//
// A repetition is written out while that is small; else it becomes a call of a counted loop, since
// states, and sets of them, grow with the number of copies. Intersections and differences need
// whole automata: both parts are made deterministic by themselves and then run side by side, which
// is why they must not contain calls.
#include "grammar/rule_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "grammar/byte_kinds.h"

namespace wideep::grammar {
namespace {

using Kind = ExpressionNode::Kind;

// A repeated part is written out if that takes so many states; else its repetitions are counted.
constexpr size_t kMaxWrittenOut = 64;

Status too_large() {
  return invalid_input("takes too many states; make it smaller, or repeat less in it");
}

// ---- Thompson's automaton ----

struct Nfa {
  struct Edge {
    uint8_t first = 0, last = 0;
    int callee = -1;  // a call instead of a byte
    int target = 0;
  };
  std::vector<std::vector<int>> empty;  // edges that take no byte
  std::vector<std::vector<Edge>> edges;
  int add() {
    empty.emplace_back();
    edges.emplace_back();
    return static_cast<int>(edges.size()) - 1;
  }
  void connect(int from, int to) { empty[static_cast<size_t>(from)].push_back(to); }
  void add_bytes(int from, uint8_t first, uint8_t last, int to) {
    edges[static_cast<size_t>(from)].push_back({first, last, -1, to});
  }
  void add_call(int from, int callee, int to) {
    edges[static_cast<size_t>(from)].push_back({0, 0, callee, to});
  }
};

// States of a written-out expression, at most `most`.
size_t size_of(const Expression& part, size_t max) {
  const ExpressionNode& node = *part;
  if (node.kind == Kind::kText) return std::min(max, node.text.size() + 1);
  if (node.kind == Kind::kWithout) return std::min(max, node.text.size() * 8);
  size_t size = 1;
  for (const Expression& each : node.parts) {
    if (size >= max) break;
    size += size_of(each, max);
  }
  if (node.kind == Kind::kRepeat) {
    size *= static_cast<size_t>(std::max({node.min, node.max, 1}));
  }
  return std::min(max, size);
}

class NfaBuilder {
 public:
  // writes_out: repeats are never counted by a loop, so that there are no calls.
  NfaBuilder(const CallNames& names, BuildWork* work, bool writes_out = false)
      : names_(names), work_(work), writes_out_(writes_out) {}

  // Appends an expression to a state; returns the state behind it.
  int append(const Expression& part, int from) {
    const ExpressionNode& node = *part;
    if (work_->exceeds()) return from;
    switch (node.kind) {
      case Kind::kText:
        for (const char byte : node.text) {
          const auto value = static_cast<uint8_t>(byte);
          from = step(from, value, value);
        }
        return from;
      case Kind::kByte:
        return step(from, node.first, node.last);
      case Kind::kSequence:
        for (const Expression& each : node.parts) from = append(each, from);
        return from;
      case Kind::kChoice: {
        const int end = add();
        for (const Expression& each : node.parts) nfa_.connect(append(each, from), end);
        return end;
      }
      case Kind::kRepeat:
        return append_repeat(node, from);
      case Kind::kCall:
        return append_call(names_.rule(node.rule), names_.matches_empty(part), from);
      case Kind::kWithout:
        return append_without(node.text, from);
      case Kind::kBoth:
      case Kind::kExcept:
        return append_product(node, from);
    }
    return from;
  }

  int add() {
    ++work_->states;
    return nfa_.add();
  }
  Nfa take() { return std::move(nfa_); }

 private:
  int step(int from, uint8_t first, uint8_t last) {
    const int to = add();
    nfa_.add_bytes(from, first, last, to);
    return to;
  }

  int append_call(int callee, bool may_be_empty, int from) {
    const int to = add();
    if (callee >= 0) nfa_.add_call(from, callee, to);
    if (may_be_empty) nfa_.connect(from, to);
    return to;
  }

  int append_repeat(const ExpressionNode& node, int from) {
    const Expression& part = node.parts.front();
    const bool may_be_empty = names_.matches_empty(part);
    const int min = may_be_empty ? 0 : node.min;
    const bool has_max = node.max != kNoMax;
    const int copies = has_max ? node.max : min;
    const size_t written_out = size_of(part, kMaxWrittenOut) * static_cast<size_t>(copies);
    if (copies > 1 && written_out > kMaxWrittenOut && !writes_out_) {
      return append_call(names_.loop(part, min, node.max), min == 0, from);
    }
    for (int i = 0; i < min; ++i) from = append(part, from);
    const int end = add();
    if (!has_max) {
      const int begin = add();
      nfa_.connect(from, begin);
      nfa_.connect(append(part, begin), begin);
      nfa_.connect(begin, end);
      return end;
    }
    for (int i = min; i < node.max; ++i) {
      nfa_.connect(from, end);
      from = append(part, from);
    }
    nfa_.connect(from, end);
    return end;
  }

  // The automaton of Knuth, Morris and Pratt: how many bytes of `end` the text ends with. Beside
  // it, how many bytes its last character lacks, so that the text is UTF-8.
  int append_without(const std::string& end, int from) {
    std::map<std::pair<size_t, CharacterRest>, int> states;
    std::vector<std::pair<size_t, CharacterRest>> open;
    const auto state_of = [&](size_t seen, const CharacterRest& lack) {
      const auto [found, is_new] = states.try_emplace({seen, lack}, 0);
      if (is_new) {
        found->second = add();
        open.emplace_back(seen, lack);
      }
      return found->second;
    };
    const std::vector<size_t> borders = borders_of(end);
    const int out = add();
    nfa_.connect(from, state_of(0, {}));
    while (!open.empty() && !work_->exceeds()) {
      const auto [seen, lack] = open.back();
      open.pop_back();
      const int at = states.at({seen, lack});
      if (lack.is_whole()) nfa_.connect(at, out);
      for (int byte = 0; byte < 256; ++byte) {
        CharacterRest next = lack;
        if (!next.take(static_cast<uint8_t>(byte))) continue;
        size_t length = seen;
        while (length > 0 && static_cast<uint8_t>(end[length]) != byte) length = borders[length];
        if (static_cast<uint8_t>(end[length]) == byte) ++length;
        if (length == end.size()) continue;
        nfa_.add_bytes(at, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte),
                       state_of(length, next));
      }
    }
    return out;
  }

  // borders[i]: the longest proper end of the first i bytes with which they begin.
  static std::vector<size_t> borders_of(const std::string& bytes) {
    std::vector<size_t> borders(bytes.size() + 1, 0);
    for (size_t i = 1; i < bytes.size(); ++i) {
      size_t length = borders[i];
      while (length > 0 && bytes[length] != bytes[i]) length = borders[length];
      borders[i + 1] = length + (bytes[length] == bytes[i] ? 1 : 0);
    }
    return borders;
  }

  // Both automata at once: pairs of their states.
  int append_product(const ExpressionNode& node, int from);

  const CallNames& names_;
  BuildWork* work_;
  bool writes_out_;
  Nfa nfa_;
};

// ---- sets of its states ----

using Set = std::vector<int>;  // sorted

struct SetHash {
  size_t operator()(const Set& set) const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const int each : set) hash = (hash ^ static_cast<uint64_t>(each)) * 0x100000001b3u;
    return hash ^ (hash >> 29);
  }
};

class SetBuilder {
 public:
  SetBuilder(const Nfa& nfa, int end, BuildWork* work)
      : nfa_(nfa), end_(end), work_(work), mark_(nfa.edges.size(), 0) {}

  Result<RuleAutomaton> build(int start) {
    number_of(closed({start}));
    for (size_t at = 0; at < sets_.size(); ++at) {
      add_edges(at);
      if (work_->exceeds()) return too_large();
    }
    return std::move(out_);
  }

 private:
  Set closed(Set set) {
    ++pass_;
    for (const int each : set) mark_[static_cast<size_t>(each)] = pass_;
    for (size_t i = 0; i < set.size(); ++i) {
      for (const int next : nfa_.empty[static_cast<size_t>(set[i])]) {
        if (std::exchange(mark_[static_cast<size_t>(next)], pass_) != pass_) set.push_back(next);
      }
    }
    work_->steps += set.size();
    // Only states with edges, and the end, tell sets apart.
    std::erase_if(set, [&](int each) {
      return each != end_ && nfa_.edges[static_cast<size_t>(each)].empty();
    });
    std::ranges::sort(set);
    return set;
  }

  int number_of(Set set) {
    const auto [found, is_new] = numbers_.try_emplace(set, static_cast<int>(sets_.size()));
    if (is_new) {
      ++work_->states;
      out_.states.emplace_back().accepts = std::ranges::binary_search(set, end_);
      sets_.push_back(std::move(set));
    }
    return found->second;
  }

  int target_of(Set targets) {
    std::ranges::sort(targets);
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    return number_of(closed(std::move(targets)));
  }

  void add_edges(size_t at) {
    std::array<Set, 256> by_byte;
    std::map<int, Set> by_call;
    for (const int member : sets_[at]) {
      for (const Nfa::Edge& edge : nfa_.edges[static_cast<size_t>(member)]) {
        if (edge.callee >= 0) {
          by_call[edge.callee].push_back(edge.target);
          continue;
        }
        work_->steps += static_cast<size_t>(edge.last - edge.first) + 1;
        for (int byte = edge.first; byte <= edge.last; ++byte) {
          by_byte[static_cast<size_t>(byte)].push_back(edge.target);
        }
      }
    }
    if (work_->exceeds()) return;
    std::vector<RuleAutomaton::Edge> edges;
    for (size_t byte = 0; byte < by_byte.size(); ++byte) {
      if (by_byte[byte].empty()) continue;
      const auto value = static_cast<uint8_t>(byte);
      const bool goes_on = byte > 0 && by_byte[byte] == by_byte[byte - 1];
      const int target = goes_on ? edges.back().target : target_of(by_byte[byte]);
      if (!edges.empty() && edges.back().last + 1 == value && edges.back().target == target) {
        edges.back().last = value;
      } else {
        edges.push_back({value, value, target});
      }
    }
    std::vector<RuleAutomaton::Call> calls;
    for (auto& [callee, targets] : by_call) calls.push_back({callee, target_of(targets)});
    out_.states[at].edges = std::move(edges);
    out_.states[at].calls = std::move(calls);
  }

  const Nfa& nfa_;
  const int end_;
  BuildWork* work_;
  std::vector<uint32_t> mark_;
  uint32_t pass_ = 0;
  std::vector<Set> sets_;
  std::unordered_map<Set, int, SetHash> numbers_;
  RuleAutomaton out_;
};

Result<RuleAutomaton> deterministic(const Expression& body, const CallNames& names, BuildWork* work,
                                    bool writes_out) {
  NfaBuilder builder(names, work, writes_out);
  const int start = builder.add();
  const int end = builder.append(body, start);
  if (work->exceeds()) return too_large();
  const Nfa nfa = builder.take();
  return SetBuilder(nfa, end, work).build(start);
}

constexpr int kNoState = -1;

// Where a byte leads, and up to which byte this holds.
struct Step {
  int target = kNoState;
  int last = 255;
};
Step step_at(const RuleAutomaton& automaton, int state, int byte) {
  if (state == kNoState) return {};
  for (const RuleAutomaton::Edge& edge : automaton.states[static_cast<size_t>(state)].edges) {
    if (byte < edge.first) return {.last = edge.first - 1};
    if (byte <= edge.last) return {.target = edge.target, .last = edge.last};
  }
  return {};
}

int NfaBuilder::append_product(const ExpressionNode& node, int from) {
  const auto first = deterministic(node.parts[0], names_, work_, true);
  const auto second = deterministic(node.parts[1], names_, work_, true);
  const int out = add();
  if (!first.ok() || !second.ok()) return out;  // the work exceeds its limits
  const bool excludes = node.kind == Kind::kExcept;
  const auto accepts = [](const RuleAutomaton& automaton, int state) {
    return state != kNoState && automaton.states[static_cast<size_t>(state)].accepts;
  };
  std::map<std::pair<int, int>, int> numbers;
  std::vector<std::pair<int, int>> open;
  const auto number_of = [&](int a, int b) {
    const auto [found, is_new] = numbers.try_emplace({a, b}, 0);
    if (is_new) {
      found->second = add();
      open.emplace_back(a, b);
    }
    return found->second;
  };
  nfa_.connect(from, number_of(0, 0));
  while (!open.empty() && !work_->exceeds()) {
    const auto [a, b] = open.back();
    open.pop_back();
    const int at = numbers.at({a, b});
    if (accepts(*first, a) && accepts(*second, b) != excludes) nfa_.connect(at, out);
    for (int byte = 0; byte < 256;) {
      const Step of_first = step_at(*first, a, byte), of_second = step_at(*second, b, byte);
      const int last = std::min(of_first.last, of_second.last);
      const bool goes_on =
          of_first.target != kNoState && (excludes || of_second.target != kNoState);
      if (goes_on) {
        nfa_.add_bytes(at, static_cast<uint8_t>(byte), static_cast<uint8_t>(last),
                       number_of(of_first.target, of_second.target));
      }
      ++work_->steps;
      byte = last + 1;
    }
  }
  return out;
}

// Without the states from which the end cannot be reached.
void trim(RuleAutomaton* rule) {
  std::vector<std::vector<int>> sources(rule->states.size());
  std::vector<int> open;
  std::vector<bool> lives(rule->states.size(), false);
  for (size_t i = 0; i < rule->states.size(); ++i) {
    const RuleAutomaton::State& state = rule->states[i];
    const auto from = static_cast<int>(i);
    for (const auto& edge : state.edges) sources[static_cast<size_t>(edge.target)].push_back(from);
    for (const auto& each : state.calls) sources[static_cast<size_t>(each.target)].push_back(from);
    if (state.accepts) {
      lives[i] = true;
      open.push_back(from);
    }
  }
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int source : sources[static_cast<size_t>(at)]) {
      if (lives[static_cast<size_t>(source)]) continue;
      lives[static_cast<size_t>(source)] = true;
      open.push_back(source);
    }
  }
  std::vector<int> numbers(rule->states.size(), -1);
  std::vector<RuleAutomaton::State> kept;
  for (size_t i = 0; i < rule->states.size(); ++i) {
    if (!lives[i] && i > 0) continue;
    numbers[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(rule->states[i]));
  }
  for (RuleAutomaton::State& state : kept) {
    const auto renumber = [&](auto& list) {
      std::erase_if(list,
                    [&](const auto& each) { return !lives[static_cast<size_t>(each.target)]; });
      for (auto& each : list) each.target = numbers[static_cast<size_t>(each.target)];
    };
    renumber(state.edges);
    renumber(state.calls);
  }
  rule->states = std::move(kept);
}

}  // namespace

Result<RuleAutomaton> build_rule(const Expression& body, const CallNames& names, BuildWork* work) {
  Result<RuleAutomaton> rule = deterministic(body, names, work, false);
  if (rule.ok()) trim(&*rule);
  return rule;
}

}  // namespace wideep::grammar
