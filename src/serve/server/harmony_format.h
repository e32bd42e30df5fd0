// SPDX-License-Identifier: Apache-2.0
//
// An answer in OpenAI's harmony format (answer/harmony_answer.h) whose final message has a
// format:
//
//   (<|channel|>analysis<|message|>…<|end|><|start|>assistant)? <|channel|>final…<|message|>ANSWER
//
// Thread safety: pure functions.
#pragma once

#include "grammar/expression.h"

namespace wideep::server {

grammar::Expression in_harmony(grammar::Expression answer);

}  // namespace wideep::server
