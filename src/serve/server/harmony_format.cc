// SPDX-License-Identifier: Apache-2.0
#include "server/harmony_format.h"

#include <utility>

namespace wideep::server {

using grammar::special_token;
using grammar::text;

grammar::Expression in_harmony(grammar::Expression answer) {
  const grammar::Expression any =
      grammar::repeat(grammar::characters({{0, grammar::kLastCharacter}}), 0, grammar::kNoMax);
  const grammar::Expression analysis = grammar::sequence(
      {special_token("<|channel|>"), text("analysis"), special_token("<|message|>"), any,
       special_token("<|end|>"), special_token("<|start|>"), text("assistant")});
  // What GPT-OSS writes where the answer is JSON.
  const grammar::Expression constrained = grammar::optional(
      grammar::sequence({text(" "), special_token("<|constrain|>"), text("json")}));
  return grammar::sequence({grammar::optional(analysis), special_token("<|channel|>"),
                            text("final"), constrained, special_token("<|message|>"),
                            std::move(answer)});
}

}  // namespace wideep::server
