// SPDX-License-Identifier: Apache-2.0
//
// What a GGUF file, or several, consists of: for people and programs that ask before a run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::tools {

struct GgufContent {
  std::string architecture;  // llama.cpp's name
  size_t num_files = 1;
  // Bytes of the tensors of each type, the most first.
  std::vector<std::pair<std::string, uint64_t>> bytes_by_type;

  uint64_t bytes() const;
  // "GGUF file of llama.cpp's architecture qwen3moe, 17.3 GiB: Q4_K 14.1 GiB, Q6_K 3.1 GiB"
  std::string text() const;
  nlohmann::ordered_json json() const;
};

// Errors (invalid input): those of tensor_files::GgufFiles::open.
Result<GgufContent> gguf_content(const std::string& path);

}  // namespace wideep::tools
