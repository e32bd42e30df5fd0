// SPDX-License-Identifier: Apache-2.0
//
// Walk goes over the trie in its stored order, with the state of each depth in path_. A node that
// leads nowhere skips all below it. So does one whose state takes all kinds of bytes below and
// stays the same (kept_kinds): inside of strings that is nearly the whole trie.
//
// walked() makes a PartMask: on the way it remembers where the rule may have ended (ends), and
// tokens that die later are kept from there on, as a trie for each number of repetitions. find()
// takes a short walk, or else the parts of all items and the walks behind them, or, where parts are
// not enough, a walk over everything.
//
// A loop's part does not know how many repetitions are left. Each token has the number that it
// begins; those that begin too many are taken out (part_of), unless such a token could leave the
// loop before.
#include "grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/cpu_time.h"
#include "grammar/byte_kinds.h"

namespace wideep::grammar {
namespace {

using State = Automaton::State;

using ByteSet = std::array<uint64_t, 4>;
constexpr ByteSet kAllBytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

bool has(const ByteSet& set, uint8_t byte) { return (set[byte / 64] >> (byte % 64) & 1) != 0; }

uint16_t kinds_of(const ByteSet& set) {
  uint16_t kinds = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    if (has(set, value)) kinds |= byte < 0x80 ? ascii_kind(value) : kCharacters;
  }
  return kinds;
}

ByteSet next_bytes(Automaton& automaton, State state) {
  ByteSet set = {};
  for (int byte = 0; byte < 256; ++byte) {
    if (automaton.next(state, static_cast<uint8_t>(byte)) == Automaton::kDead) continue;
    set[static_cast<size_t>(byte) / 64] |= uint64_t{1} << (byte % 64);
  }
  return set;
}

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
// on_dead(node) for each that does not; then not for those below it. Returns how many nodes it has
// met, and tokens below on_all(); it ends where these are more than max_nodes.
class Walk {
 public:
  Walk(Automaton& automaton, const TokenTrie& trie) : automaton_(automaton), trie_(trie) {}

  template <typename OnNode, typename OnAll, typename OnDead>
  size_t from(State start, size_t max_nodes, OnNode on_node, OnAll on_all, OnDead on_dead) {
    const std::span<const TokenTrie::Node> nodes = trie_.nodes();
    path_.assign(static_cast<size_t>(trie_.depth()) + 1, Automaton::kDead);
    path_[0] = start;
    size_t seen = 0;
    for (uint32_t at = 0; at < nodes.size();) {
      if (++seen > max_nodes) return seen;
      const TokenTrie::Node& node = nodes[at];
      const State next = automaton_.next(path_[node.depth - 1u], node.byte);
      if (next == Automaton::kDead || !may_see(next, node.depth)) {
        on_dead(at);
        at = node.end;
        continue;
      }
      if (node.ends_character && node.end > at + 1 && (node.kinds_below & ~kept_kinds(next)) == 0) {
        seen += trie_.tokens_from(at).size();
        if (seen > max_nodes) return seen;
        on_all(at, next);
        at = node.end;
        continue;
      }
      path_[node.depth] = next;
      on_node(at, next);
      ++at;
    }
    return seen;
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
    if (num_seen_ >= kMaxWalkStates && depth > 1) {
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

// Those that begin the most come first. There may be as many as tokens, and few different numbers.
void sort_by_begun(std::vector<PartMask::Repeating>* tokens) {
  std::vector<size_t> count;
  for (const PartMask::Repeating& each : *tokens) {
    const auto begun = static_cast<size_t>(each.begun);
    if (count.size() <= begun) count.resize(begun + 1);
    ++count[begun];
  }
  size_t place = 0;
  for (size_t begun = count.size(); begun-- > 0;) place += std::exchange(count[begun], place);
  std::vector<PartMask::Repeating> sorted(tokens->size());
  for (const PartMask::Repeating& each : *tokens) {
    sorted[count[static_cast<size_t>(each.begun)]++] = each;
  }
  *tokens = std::move(sorted);
}

// The key of what is asked for first. Of a loop that ends it matters whether tokens could leave
// before they begin too many repetitions, and so what follows.
PartMasks::Key first_key(Automaton& automaton, Automaton::Item item) {
  PartMasks::Key key = {.where = automaton.within(item), .next = kAllBytes};
  if (automaton.repeats(item).max != kNoMax) {
    key.next = next_bytes(automaton, automaton.behind(item));
  }
  return key;
}

}  // namespace

// ---- of places in rules ----

size_t PartMask::bytes() const {
  size_t bytes = inside.size() * sizeof(uint64_t) + repeating.size() * sizeof(Repeating);
  for (const TokenTrie& each : leaving) bytes += each.bytes();
  return bytes;
}

PartMasks::Part PartMasks::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(key);
  return found == parts_.end() ? nullptr : found->second;
}

void PartMasks::add(const Key& key, Part part) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + part->bytes() > kMaxBytes) {
    parts_.clear();
    bytes_ = 0;
  }
  bytes_ += part->bytes();
  parts_.insert_or_assign(key, std::move(part));
}

size_t PartMasks::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

PartMasks::Part TokenMasks::walked(Automaton& automaton, Automaton::Item item,
                                   const PartMasks::Key& key) {
  if (PartMasks::Part known = parts_.find(key)) return known;
  const TokenTrie& trie = vocabulary_.trie();
  auto part = std::make_shared<PartMask>();
  part->inside.resize((static_cast<size_t>(vocabulary_.size()) + 63) / 64);
  const size_t max_leaving = key.next == kAllBytes ? limits_.leaving : limits_.leaving_there;
  std::vector<std::vector<std::pair<std::string_view, int32_t>>> leaving;
  size_t num_leaving = 0;
  // Where on the path the rule may end: behind so many bytes, after so many repetitions.
  struct End {
    int depth = 0, repeats = 0;
  };
  std::vector<End> ends;
  const auto shorten = [&](int depth) {
    while (!ends.empty() && ends.back().depth >= depth) ends.pop_back();
  };
  const auto take = [&](std::span<const int32_t> tokens, State state) {
    part->num_inside += tokens.size();
    const int32_t begun =
        key.where.is_loop != 0 && !tokens.empty() ? automaton.repeats_begun(state) : 0;
    for (const int32_t token : tokens) {
      allow(token, &part->inside);
      if (begun > 1) part->repeating.push_back({token, begun});
    }
  };
  const uint16_t next_kinds = kinds_of(key.next);
  const auto on_node = [&](uint32_t at, State state) {
    const TokenTrie::Node& node = trie.nodes()[at];
    shorten(node.depth);
    if (!ends.empty() && ends.back().depth == node.depth - 1 && has(key.next, node.byte)) {
      part->is_greedy = false;
    }
    take(trie.tokens_of(at), state);
    for (const int32_t repeats : automaton.leaves(state)) ends.push_back({node.depth, repeats});
  };
  const auto on_all = [&](uint32_t at, State state) {
    const TokenTrie::Node& node = trie.nodes()[at];
    shorten(node.depth);
    if (!ends.empty() && ends.back().depth == node.depth - 1 && has(key.next, node.byte)) {
      part->is_greedy = false;
    }
    if (!automaton.leaves(state).empty() && (node.kinds_below & next_kinds) != 0) {
      part->is_greedy = false;
    }
    take(trie.tokens_from(at), state);
  };
  const auto on_dead = [&](uint32_t at) {
    shorten(trie.nodes()[at].depth);
    if (ends.empty() || !part->is_whole) return;
    const std::span<const int32_t> tokens = trie.tokens_from(at);
    const std::string_view text = vocabulary_.text(tokens.front());
    for (const End& end : ends) {
      const auto depth = static_cast<size_t>(end.depth);
      if (!has(key.next, static_cast<uint8_t>(text[depth]))) continue;
      num_leaving += tokens.size();
      if (num_leaving > max_leaving) part->is_whole = false;
      if (!part->is_whole) return;
      const auto repeats = static_cast<size_t>(end.repeats);
      if (leaving.size() <= repeats) leaving.resize(repeats + 1);
      for (const int32_t token : tokens) {
        leaving[repeats].emplace_back(vocabulary_.text(token).substr(depth), token);
      }
    }
  };
  Walk(automaton, trie).from(automaton.open(item), SIZE_MAX, on_node, on_all, on_dead);
  sort_by_begun(&part->repeating);
  if (part->is_whole) {
    for (auto& tokens : leaving) part->leaving.emplace_back(std::move(tokens));
  }
  parts_.add(key, part);
  return part;
}

TokenMasks::Part TokenMasks::part_of(Automaton& automaton, Automaton::Item item) {
  const int32_t max = automaton.repeats(item).max;
  PartMasks::Key key = first_key(automaton, item);
  PartMasks::Part part = walked(automaton, item, key);
  if (!part->is_whole && key.next == kAllBytes) {
    key.next = next_bytes(automaton, automaton.behind(item));
    part = walked(automaton, item, key);
  }
  const bool begins_too_many =
      max != kNoMax && !part->repeating.empty() && part->repeating.front().begun > max;
  if (!begins_too_many) return {part, part, part->is_whole};
  if (!part->is_greedy) return {.is_whole = false};
  key.max = max;
  PartMasks::Part inside = parts_.find(key);
  if (inside == nullptr) {
    auto fewer = std::make_shared<PartMask>(PartMask{.inside = part->inside});
    for (const PartMask::Repeating& each : part->repeating) {
      if (each.begun <= max) break;
      fewer->inside[static_cast<size_t>(each.token) / 64] &= ~(uint64_t{1} << (each.token % 64));
    }
    inside = std::move(fewer);
    parts_.add(key, inside);
  }
  return {inside, part, part->is_whole};
}

bool TokenMasks::is_large(Automaton& automaton, Automaton::Item item) const {
  const PartMasks::Part known = parts_.find(first_key(automaton, item));
  if (known == nullptr) return false;
  const int32_t max = automaton.repeats(item).max;
  const auto too_many = std::ranges::partition_point(
      known->repeating, [&](const PartMask::Repeating& each) { return each.begun > max; });
  const size_t left_out =
      max == kNoMax ? 0 : static_cast<size_t>(too_many - known->repeating.begin());
  return known->num_inside - left_out > limits_.short_nodes;
}

// ---- of states ----

TokenMasks::Mask TokenMasks::find(Automaton& automaton, State state) {
  const TokenTrie& trie = vocabulary_.trie();
  Mask mask;
  const auto walk = [&](const TokenTrie& tokens, State from, size_t max_nodes) {
    const auto take = [&](std::span<const int32_t> more) {
      mask.tokens.insert(mask.tokens.end(), more.begin(), more.end());
    };
    return Walk(automaton, tokens)
        .from(
            from, max_nodes, [&](uint32_t at, State) { take(tokens.tokens_of(at)); },
            [&](uint32_t at, State) { take(tokens.tokens_from(at)); }, kIgnore);
  };
  const std::vector<Automaton::Item> items(automaton.items(state).begin(),
                                           automaton.items(state).end());
  // As many tokens as one of the items takes are not found by a short walk.
  const bool is_long = std::ranges::any_of(
      items, [&](const Automaton::Item& item) { return is_large(automaton, item); });
  if (!is_long && walk(trie, state, limits_.short_nodes) <= limits_.short_nodes) return mask;
  mask.tokens.clear();
  std::vector<Part> parts;
  bool is_whole = true;
  for (const Automaton::Item& item : items) {
    parts.push_back(part_of(automaton, item));
    is_whole &= parts.back().is_whole;
  }
  if (!is_whole) {
    mask.all.resize((static_cast<size_t>(vocabulary_.size()) + 63) / 64);
    const auto take = [&](std::span<const int32_t> tokens) {
      for (const int32_t token : tokens) allow(token, &mask.all);
    };
    Walk(automaton, trie)
        .from(
            state, SIZE_MAX, [&](uint32_t at, State) { take(trie.tokens_of(at)); },
            [&](uint32_t at, State) { take(trie.tokens_from(at)); }, kIgnore);
    return mask;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    mask.parts.push_back(parts[i].inside);
    const std::vector<TokenTrie>& leaving = parts[i].leaving->leaving;
    const auto [min, max] = automaton.repeats(items[i]);
    const bool is_loop = automaton.within(items[i]).is_loop != 0;
    for (size_t repeats = 0; repeats < leaving.size(); ++repeats) {
      const auto count = static_cast<int32_t>(repeats);
      if (leaving[repeats].empty()) continue;
      if (is_loop && (count < min || (max != kNoMax && count > max))) continue;
      walk(leaving[repeats], automaton.behind(items[i]), SIZE_MAX);
    }
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

// ---- ahead ----

void prepare_masks(const Grammar& grammar, const Vocabulary& vocabulary, PartMasks& parts,
                   const std::function<bool()>& goes_on) {
  constexpr size_t kMaxStates = 8192;
  constexpr int kMaxAlike = 2;  // states that differ in what surrounds their places
  constexpr int64_t kMaxNs = 300'000'000;
  Automaton automaton(grammar);
  TokenMasks masks(vocabulary, parts);
  const int64_t start_ns = base::thread_cpu_ns();
  std::map<std::vector<Automaton::Within>, int> alike;
  std::unordered_set<State> known = {Automaton::kDead, automaton.start()};
  std::vector<State> open = {automaton.start()};
  for (size_t at = 0; at < open.size(); ++at) {
    if (!goes_on() || base::thread_cpu_ns() - start_ns > kMaxNs) return;
    const State state = open[at];
    std::vector<Automaton::Within> places;
    for (const Automaton::Item& item : automaton.items(state)) {
      places.push_back(automaton.within(item));
    }
    int num_bytes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const State next = automaton.next(state, static_cast<uint8_t>(byte));
      num_bytes += next != Automaton::kDead ? 1 : 0;
      if (open.size() < kMaxStates && known.insert(next).second) open.push_back(next);
    }
    if (num_bytes > 1 && ++alike[places] <= kMaxAlike) masks.any_after(automaton, state);
  }
}

}  // namespace wideep::grammar
