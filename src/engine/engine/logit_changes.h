// SPDX-License-Identifier: Apache-2.0
//
// What a request changes in its logits before a token is sampled, as OpenAI and vLLM define it, in
// this order:
//
//   logit_bias           l += bias
//   repetition_penalty   of tokens of the prompt or the answer: l > 0 ? l / r : l · r
//   frequency_penalty    of tokens of the answer: l −= f · times
//   presence_penalty     of tokens of the answer: l −= p
//   TokenRules           −∞ (schedule/token_rules.h)
//
// The result depends on the tokens before alone, so that drafts, pauses and the death of ranks do
// not change it.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/request.h"

namespace wideep::engine {

// Whether there is anything to change.
bool changes_logits(const Request& request);

// logits: [vocab]. The answer: tokens, then drafts, which are taken for accepted. Tokens beyond the
// vocabulary change nothing.
// end_tokens: of the model.
void change_logits(const Request& request, std::span<const int> end_tokens,
                   std::span<const int32_t> answer, std::span<const int32_t> drafts,
                   std::span<float> logits);

}  // namespace wideep::engine
