// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_masks.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "grammar/byte_kinds.h"

namespace wideep::grammar {
namespace {

using State = Automaton::State;

constexpr size_t kMostShortNodes = 4096;          // of a walk that needs no PartMask
constexpr size_t kMostLeaving = size_t{1} << 16;  // ends of tokens

// The kinds of bytes that a state takes and stays the same.
uint16_t find_kept_kinds(Automaton& automaton, State state) {
  uint16_t kinds = UINT16_MAX & ~kBrokenBytes;
  for (int byte = 0; byte < 0x80; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    if (automaton.next(state, value) != state) kinds &= ~ascii_kind(value);
  }
  // Every character, by the states between its bytes; there are few of these.
  std::set<std::pair<CharacterRest, State>> seen;
  std::vector<std::pair<CharacterRest, State>> open = {{{}, state}};
  while (!open.empty()) {
    const auto [rest, from] = open.back();
    open.pop_back();
    for (int byte = 0x80; byte < 0x100; ++byte) {
      CharacterRest behind = rest;
      const auto value = static_cast<uint8_t>(byte);
      if (!behind.take(value)) continue;
      const State to = automaton.next(from, value);
      if (to == Automaton::kDead || (behind.is_whole() && to != state)) return kinds & ~kCharacters;
      if (!behind.is_whole() && seen.emplace(behind, to).second) open.emplace_back(behind, to);
    }
  }
  return kinds;
}

// A walk from one state over a trie. on_node(node, state) is called for each beginning of a token
// that leads somewhere, on_all(node) instead if it is sure that all tokens below it do, too, and
// on_dead(node) for each that does not; then not for those below it. Returns false where it has met
// more than most_nodes, and tokens below on_all().
class Walk {
 public:
  Walk(Automaton& automaton, const TokenTrie& trie) : automaton_(automaton), trie_(trie) {}

  template <typename OnNode, typename OnAll, typename OnDead>
  bool from(State start, size_t most_nodes, OnNode on_node, OnAll on_all, OnDead on_dead) {
    const std::span<const TokenTrie::Node> nodes = trie_.nodes();
    path_.assign(static_cast<size_t>(trie_.depth()) + 1, Automaton::kDead);
    path_[0] = start;
    size_t seen = 0;
    for (uint32_t at = 0; at < nodes.size();) {
      if (++seen > most_nodes) return false;
      const TokenTrie::Node& node = nodes[at];
      const State next = automaton_.next(path_[node.depth - 1u], node.byte);
      if (next == Automaton::kDead || !may_see(next, node.depth)) {
        on_dead(at);
        at = node.end;
        continue;
      }
      if (node.ends_character && node.end > at + 1 && (node.kinds_below & ~kept_kinds(next)) == 0) {
        seen += trie_.tokens_from(at).size();
        if (seen > most_nodes) return false;
        on_all(at);
        at = node.end;
        continue;
      }
      path_[node.depth] = next;
      on_node(at, next);
      ++at;
    }
    return true;
  }

 private:
  // What this walk knows of a state.
  struct Seen {
    uint32_t visits = 0;
    uint16_t kept_kinds = 0;
  };

  bool may_see(State state, int depth) {
    const auto number = static_cast<size_t>(state);
    if (number >= seen_.size()) seen_.resize(std::max(number + 1, 2 * seen_.size()));
    if (++seen_[number].visits > 1) return true;
    if (num_seen_ >= kMostWalkStates && depth > 1) {
      seen_[number].visits = 0;
      return false;
    }
    ++num_seen_;
    return true;
  }

  // To find them takes some hundred steps: worth it for states that are met often.
  uint16_t kept_kinds(State state) {
    constexpr uint32_t kOften = 64;
    Seen& seen = seen_[static_cast<size_t>(state)];
    if (seen.visits == kOften) {
      const uint16_t kinds = find_kept_kinds(automaton_, state);
      seen_[static_cast<size_t>(state)].kept_kinds = kinds;
      return kinds;
    }
    return seen.kept_kinds;
  }

  Automaton& automaton_;
  const TokenTrie& trie_;
  std::vector<State> path_;
  std::vector<Seen> seen_;  // by state
  size_t num_seen_ = 0;
};

constexpr auto kIgnore = [](uint32_t) {};

}  // namespace

// ---- of places in rules ----

PartMasks::Part PartMasks::find(const Automaton::Within& where) const {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(where);
  return found == parts_.end() ? nullptr : found->second;
}

void PartMasks::add(const Automaton::Within& where, Part part) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + part->bytes() > kMostBytes) {
    parts_.clear();
    bytes_ = 0;
  }
  bytes_ += part->bytes();
  parts_.insert_or_assign(where, std::move(part));
}

size_t PartMasks::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

PartMasks::Part TokenMasks::part_of(Automaton& automaton, Automaton::Item item) {
  const TokenTrie& trie = vocabulary_.trie();
  const Automaton::Within where = automaton.within(item, trie.depth());
  if (PartMasks::Part known = parts_.find(where)) return known;
  auto part = std::make_shared<PartMask>();
  part->inside.resize((static_cast<size_t>(vocabulary_.size()) + 63) / 64);
  std::vector<std::pair<std::string, int32_t>> leaving;
  std::vector<uint16_t> ends;  // depths on the path where the rule may end
  const auto shorten = [&](int depth) {
    while (!ends.empty() && ends.back() >= depth) ends.pop_back();
  };
  const auto on_node = [&](uint32_t at, State state) {
    const TokenTrie::Node& node = trie.nodes()[at];
    shorten(node.depth);
    for (const int32_t token : trie.tokens_of(at)) allow(token, &part->inside);
    if (automaton.leaves(state)) ends.push_back(node.depth);
  };
  const auto on_all = [&](uint32_t at) {
    for (const int32_t token : trie.tokens_from(at)) allow(token, &part->inside);
  };
  const auto on_dead = [&](uint32_t at) {
    shorten(trie.nodes()[at].depth);
    if (ends.empty()) return;
    const std::span<const int32_t> tokens = trie.tokens_from(at);
    if (leaving.size() + tokens.size() * ends.size() > kMostLeaving) part->is_whole = false;
    if (!part->is_whole) return;
    for (const int32_t token : tokens) {
      for (const uint16_t end : ends) {
        leaving.emplace_back(vocabulary_.text(token).substr(end), token);
      }
    }
  };
  Walk(automaton, trie).from(automaton.open(item), SIZE_MAX, on_node, on_all, on_dead);
  if (part->is_whole) part->leaving = TokenTrie(std::move(leaving));
  parts_.add(where, part);
  return part;
}

// ---- of states ----

TokenMasks::Mask TokenMasks::find(Automaton& automaton, State state) {
  const TokenTrie& trie = vocabulary_.trie();
  Mask mask;
  const auto walk = [&](const TokenTrie& tokens, State from, size_t most_nodes) {
    const auto take = [&](std::span<const int32_t> more) {
      mask.tokens.insert(mask.tokens.end(), more.begin(), more.end());
    };
    return Walk(automaton, tokens)
        .from(
            from, most_nodes, [&](uint32_t at, State) { take(tokens.tokens_of(at)); },
            [&](uint32_t at) { take(tokens.tokens_from(at)); }, kIgnore);
  };
  if (walk(trie, state, kMostShortNodes)) return mask;
  mask.tokens.clear();
  const std::vector<Automaton::Item> items(automaton.items(state).begin(),
                                           automaton.items(state).end());
  bool is_whole = true;
  for (const Automaton::Item& item : items) {
    mask.parts.push_back(part_of(automaton, item));
    is_whole &= mask.parts.back()->is_whole;
  }
  if (!is_whole) {
    mask.parts.clear();
    mask.all.resize((static_cast<size_t>(vocabulary_.size()) + 63) / 64);
    const auto take = [&](std::span<const int32_t> tokens) {
      for (const int32_t token : tokens) allow(token, &mask.all);
    };
    Walk(automaton, trie)
        .from(
            state, SIZE_MAX, [&](uint32_t at, State) { take(trie.tokens_of(at)); },
            [&](uint32_t at) { take(trie.tokens_from(at)); }, kIgnore);
    return mask;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const TokenTrie& leaving = mask.parts[i]->leaving;
    if (leaving.empty()) continue;
    const State behind = automaton.behind(items[i]);
    walk(leaving, behind, SIZE_MAX);
  }
  return mask;
}

const TokenMasks::Mask& TokenMasks::of(Automaton& automaton, State state) {
  const auto known = known_.find(state);
  if (known != known_.end()) return known->second;
  Mask mask = find(automaton, state);
  const auto is_set = [](const TokenBits& bits) {
    return std::ranges::any_of(bits, [](uint64_t word) { return word != 0; });
  };
  mask.has_any =
      !mask.tokens.empty() || is_set(mask.all) ||
      std::ranges::any_of(mask.parts, [&](const auto& part) { return is_set(part->inside); });
  bytes_ += sizeof(Mask) + mask.tokens.size() * sizeof(int32_t) +
            mask.all.size() * sizeof(uint64_t) + mask.parts.size() * sizeof(PartMasks::Part) +
            4 * sizeof(uint64_t);
  return known_.emplace(state, std::move(mask)).first->second;
}

void TokenMasks::allow_after(Automaton& automaton, State state, TokenBits* bits) {
  const Mask& mask = of(automaton, state);
  const auto add = [&](const TokenBits& more) {
    for (size_t i = 0; i < more.size(); ++i) (*bits)[i] |= more[i];
  };
  for (const PartMasks::Part& part : mask.parts) add(part->inside);
  if (!mask.all.empty()) add(mask.all);
  for (const int32_t token : mask.tokens) allow(token, bits);
}

bool TokenMasks::any_after(Automaton& automaton, State state) {
  return of(automaton, state).has_any;
}

}  // namespace wideep::grammar
