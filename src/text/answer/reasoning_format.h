// SPDX-License-Identifier: Apache-2.0
//
// How a family of models marks its reasoning, which comes before the content of an answer.
//
// Thread safety: immutable values.
#pragma once

#include <span>
#include <string_view>

namespace wideep::answer {

struct ReasoningFormat {
  std::string_view name;  // vLLM's
  std::string_view begin = "<think>", end = "</think>";
  // Around the content after the reasoning; "": nothing.
  std::string_view content_begin = {}, content_end = {};
  // Answers begin with reasoning even if neither prompt nor answer says so.
  bool is_always_open = false;
  // All marks are tokens of their own, which no text has. Then those of the content come without
  // reasoning, too, reasoning may begin again behind content, and what is out of place is left out.
  bool has_own_tokens = false;
  // What begins the next message of the same answer, behind the reasoning.
  std::string_view next_message = {};
  // What a template has that makes its marks of parts; "": it has them whole.
  std::string_view sign = {};
};

std::span<const ReasoningFormat> reasoning_formats();

// By one of vLLM's names; null: none has it.
const ReasoningFormat* find_reasoning_format(std::string_view name);

// By what a model's chat template makes of earlier reasoning, or begins answers with; null: the
// template knows no reasoning.
const ReasoningFormat* reasoning_format_of_template(std::string_view text);

// Whether a prompt ends with the beginning of the reasoning.
bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt);
// Whether it ends behind the reasoning, so that the answer has none: thinking is off.
bool closes_reasoning(const ReasoningFormat& format, std::string_view prompt);

}  // namespace wideep::answer
