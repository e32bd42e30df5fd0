// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace wideep::tokenizer {

// The ids of special tokens that a TemplateProcessing adds before and after a text.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

}  // namespace wideep::tokenizer
