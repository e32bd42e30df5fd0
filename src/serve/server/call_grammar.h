// SPDX-License-Identifier: Apache-2.0
//
// An answer that must call a tool (tool_choice "required", or a tool's name), as a grammar: what a
// model writes by the shape of its format (answer/call_format.h), with arguments that satisfy the
// tool's schema. And an answer that may reason before it has to be something.
//
// Of arguments between tags, texts may be any that do not contain the end of a value; of schemas
// only the types, enum and what is in values of other types are kept to then.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "answer/reasoning_format.h"
#include "grammar/expression.h"
#include "server/answer_style.h"
#include "wideep/status.h"

namespace wideep::server {

// Of tools whose answer::ToolList takes too much work.
inline constexpr const char* kTooMuchInTools =
    "tools: the schemas of their arguments take too much work to look through; make them smaller";

struct RequiredCalls {
  const AnswerStyle& style;             // calls_tools
  const nlohmann::ordered_json& tools;  // as in a request
  std::string name;                     // of the only one that may be called; "": any of them
  bool one_call = false;                // not several
};

// Adds its rules; returns what the answer is, without reasoning. Errors (invalid input): a schema
// that cannot be kept to, with its place.
Result<grammar::Expression> required_calls(const RequiredCalls& wanted, grammar::Rules* rules);

// The same for an answer that may call tools or be something else: a tool whose schema cannot be
// kept to takes any arguments.
Result<grammar::Expression> possible_calls(const RequiredCalls& wanted, grammar::Rules* rules);

// Whether an answer reasons, before it is what it has to be.
enum class Reasoning {
  kBegun,     // the prompt has begun it
  kPossible,  // the model may begin it, with its mark and nothing before
  kOff,       // it is off, or the prompt has ended it
};
// REQUIRES: the style has a format of reasoning.
grammar::Expression after_reasoning(grammar::Expression answer, const AnswerStyle& style,
                                    Reasoning reasoning);

// An answer that is content, between the marks of a format that always writes them.
grammar::Expression in_content(grammar::Expression answer, const AnswerStyle& style);

}  // namespace wideep::server
