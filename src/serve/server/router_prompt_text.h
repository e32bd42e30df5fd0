// SPDX-License-Identifier: Apache-2.0
//
// What the body of a request for text says of its prompt, without a tokenizer: the members that
// decide the prompt's beginning, as they stand in the JSON, one after the other. Two prompts that
// begin alike have texts that begin alike, if their clients write JSON alike.
//
// The text is cut into chunks; the name of a chunk is a hash over it and the name before. So equal
// names mean equal beginnings. What is left of the last chunk has no name.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace wideep::server {

struct PromptText {
  static constexpr size_t kChunkBytes = 256;

  uint64_t bytes = 0;           // of the text
  std::vector<uint64_t> chain;  // [chunks] names, in order
  bool has_salt = false;        // its pages are kept apart, and told to nobody
};

// Whether POST to this path asks for text: completions, chat completions, responses, messages.
bool is_for_text(std::string_view path);

// Reads as much of JSON as it takes to find members; what else is wrong with the body is for
// whoever answers it. Nullopt: the body is no object, is cut, has something behind its end, or has
// no prompt. Reads about 1 GB/s.
std::optional<PromptText> read_prompt_text(std::string_view path, std::string_view body);

}  // namespace wideep::server
