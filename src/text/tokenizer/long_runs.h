// SPDX-License-Identifier: Apache-2.0
//
// Kimi's tokenizer cuts a long text before it looks for words, and added tokens too. Source:
// tokenization_kimi.py, which took it from Llama 3's tokenizer.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace wideep::tokenizer {

struct RunLimits {
  size_t part = 400'000;  // characters of a part
  size_t run = 25'000;    // characters in a row that are all white space, or all none
};

// The parts of a text, in order; none is empty. White space is Python's str.isspace().
// REQUIRES: valid UTF-8. Thread safe.
std::vector<std::string_view> cut_long_runs(std::string_view text, const RunLimits& limits);

}  // namespace wideep::tokenizer
