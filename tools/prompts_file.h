// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::tools {

// Reads the prompts of a JSONL file. Each line is one object with the string "prompt"; the labels
// "id" and "domain" are ignored, other keys are refused, empty lines are skipped. Errors (invalid
// input) name file and line.
Result<std::vector<std::string>> read_prompts(const std::string& path);
// The same of a content, which errors call `name`.
Result<std::vector<std::string>> parse_prompts(std::string content, const std::string& name);

// Turns of a conversation, the first of which is a prompt.
using Turns = std::vector<std::string>;

// Reads the conversations of a JSONL file: each line has "prompt", or "turns", a list of texts, as
// MT-bench has it. The labels id, domain, question_id, category and reference are ignored, other
// keys are refused. Errors (invalid input) name file and line.
Result<std::vector<Turns>> read_conversations(const std::string& path);

// All of it, without a line feed at its end.
std::string read_standard_input();

}  // namespace wideep::tools
