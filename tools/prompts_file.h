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

}  // namespace wideep::tools
