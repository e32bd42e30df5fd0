// SPDX-License-Identifier: Apache-2.0
//
// Rules are read off the answer's tokens anew for each token instead of kept as a state: drafts, a
// pause and another rank then need no state to be saved, copied or sent. The cost is a search for
// the ends of thoughts in the answer, and only for requests with such a limit.
#include "schedule/token_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace wideep::engine {
namespace {

using Tokens = std::span<const int32_t>;

void forbid(int32_t token, std::span<float> logits) {
  const bool is_known = token >= 0 && static_cast<size_t>(token) < logits.size();
  if (is_known) logits[static_cast<size_t>(token)] = -INFINITY;
}

// kept: rising. In place: they may be as many as there are logits, for each token of each answer.
void keep_only(Tokens kept, std::span<float> logits) {
  size_t from = 0;
  for (const int32_t each : kept) {
    const auto token = static_cast<size_t>(each);
    if (each < 0 || token >= logits.size()) continue;
    std::ranges::fill(logits.subspan(from, token - from), -INFINITY);
    from = token + 1;
  }
  std::ranges::fill(logits.subspan(from), -INFINITY);
}

// A sequence whose tokens but the last one end the answer.
void forbid_banned(const TokenRules& rules, Tokens answer, std::span<float> logits) {
  for (const std::vector<int32_t>& banned : rules.banned) {
    const Tokens before = Tokens(banned).first(banned.size() - 1);
    if (before.size() > answer.size()) continue;
    if (std::ranges::equal(before, answer.last(before.size()))) forbid(banned.back(), logits);
  }
}

// Where the sequence ends for the first time at or after `from`; npos: nowhere.
constexpr size_t kNowhere = static_cast<size_t>(-1);
size_t end_of(Tokens sequence, Tokens text, size_t from) {
  if (sequence.empty()) return kNowhere;
  const auto found = std::search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(),
                                 sequence.begin(), sequence.end());
  if (found == text.end()) return kNowhere;
  return static_cast<size_t>(found - text.begin()) + sequence.size();
}

// How many tokens of reasoning there are if it has not ended; none: the model does not think. What
// is written of its end after the limit counts.
std::optional<size_t> num_thoughts(const ThoughtLimit& limit, Tokens answer) {
  size_t begin = 0;
  bool is_open = limit.is_open;
  for (;;) {
    if (!is_open) begin = end_of(limit.begin, answer, begin);
    if (begin == kNowhere) return {};
    const size_t end = end_of(limit.end, answer, begin);
    if (end == kNowhere) return answer.size() - begin;
    begin = end;
    is_open = false;
  }
}

}  // namespace

SharedRules::SharedRules() {
  static const auto kNone = std::make_shared<const TokenRules>();
  rules_ = kNone;
}

std::optional<int32_t> required_token(const TokenRules& rules, Tokens answer) {
  if (answer.size() < rules.forced.size()) return rules.forced[answer.size()];
  const ThoughtLimit& limit = rules.thought;
  if (limit.max_tokens < 0) return {};
  const auto thoughts = num_thoughts(limit, answer.subspan(rules.forced.size()));
  const auto max = static_cast<size_t>(limit.max_tokens);
  if (!thoughts || *thoughts < max) return {};
  return limit.end[(*thoughts - max) % limit.end.size()];
}

void apply_rules(const TokenRules& rules, std::span<const int> end_tokens, Tokens answer,
                 std::span<float> logits) {
  if (const auto required = required_token(rules, answer)) {
    return keep_only(std::span(&*required, 1), logits);
  }
  const Tokens own = answer.subspan(rules.forced.size());
  if (!rules.allowed.empty()) keep_only(rules.allowed, logits);
  forbid_banned(rules, own, logits);
  if (own.size() >= static_cast<size_t>(rules.min_tokens)) return;
  for (const int token : end_tokens) forbid(token, logits);
  for (const int32_t token : rules.stop_tokens) forbid(token, logits);
}

namespace {

// The fields in the order of their bytes: one list for both ways.
template <typename Wire, typename AnyRules>
void transfer(Wire& wire, AnyRules& rules) {
  auto& thought = rules.thought;
  wire.fields(rules.forced, rules.min_tokens, rules.stop_tokens, rules.allowed, rules.banned,
              thought.max_tokens, thought.begin, thought.end, thought.is_open);
}

}  // namespace

void put(const TokenRules& rules, WireWriter& writer) { transfer(writer, rules); }

TokenRules get_token_rules(WireReader& reader) {
  TokenRules rules;
  transfer(reader, rules);
  return rules;
}

}  // namespace wideep::engine
