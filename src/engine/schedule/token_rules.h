// SPDX-License-Identifier: Apache-2.0
//
// What a request says of the tokens of its answer, beside how they are drawn (SamplingParams) and
// its grammar. A token that must not come has the logit −∞; where a grammar allows nothing else,
// the grammar wins.
//
// All of it follows from the tokens before, so that drafts, ranks that sample alike, and a rank
// that goes on with a request of another one find the same.
//
// Thread safety: a plain value and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/wire.h"

namespace wideep::engine {

// How long a model may think: after so many tokens of reasoning its end comes.
struct ThoughtLimit {
  int max_tokens = -1;                        // −1: none
  std::vector<int32_t> begin = {}, end = {};  // of the reasoning
  bool is_open = false;                       // the prompt has begun it
};

struct TokenRules {
  // The first tokens of the answer, whatever their logits: of a prompt that is scored. They are
  // drawn from nothing, end nothing, and count with the prompt in what follows.
  std::vector<int32_t> forced = {};
  int min_tokens = 0;                             // before these no token may end the answer
  std::vector<int32_t> stop_tokens = {};          // end it, beside the model's own
  std::vector<int32_t> allowed = {};              // only these may come, rising; empty: all
  std::vector<std::vector<int32_t>> banned = {};  // sequences that must not come; none is empty
  ThoughtLimit thought = {};

  // Whether any logit may be changed.
  bool change_logits() const {
    return !forced.empty() || min_tokens > 0 || !allowed.empty() || !banned.empty() ||
           thought.max_tokens >= 0;
  }
  int num_forced() const { return static_cast<int>(forced.size()); }
};

// Rules that all copies share: those of a request are of all its answers, and may list a
// vocabulary.
class SharedRules {
 public:
  SharedRules();  // none
  SharedRules(TokenRules rules) : rules_(std::make_shared<const TokenRules>(std::move(rules))) {}

  const TokenRules& operator*() const { return *rules_; }
  const TokenRules* operator->() const { return rules_.get(); }
  bool is_copy_of(const SharedRules& other) const { return rules_ == other.rules_; }

 private:
  std::shared_ptr<const TokenRules> rules_;  // never null
};

// The token that must follow `answer`: a forced one, or the end of thoughts that are too long.
std::optional<int32_t> required_token(const TokenRules& rules, std::span<const int32_t> answer);

// logits: [vocab], of what follows `answer`. end_tokens: of the model.
void apply_rules(const TokenRules& rules, std::span<const int> end_tokens,
                 std::span<const int32_t> answer, std::span<float> logits);

void put(const TokenRules& rules, WireWriter& writer);
TokenRules get_token_rules(WireReader& reader);

}  // namespace wideep::engine
