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

// All of it, without a line feed at its end.
std::string read_standard_input();

}  // namespace wideep::tools
