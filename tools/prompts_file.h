// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::tools {

// Prompts of a JSONL file: one object a line with the string "prompt", and "id" or "domain" as
// labels for the reader; other keys are refused, empty lines are skipped. Errors (invalid input)
// name file and line.
Result<std::vector<std::string>> read_prompts(const std::string& path);

}  // namespace wideep::tools
