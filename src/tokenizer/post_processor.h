// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace wideep::tokenizer {

// The special tokens that a TemplateProcessing puts around a text.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

}  // namespace wideep::tokenizer
