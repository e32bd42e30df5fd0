// SPDX-License-Identifier: Apache-2.0
//
// For tests: the JSON of a tokenizer with 256 byte tokens, eight merges and two added tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tokenizer/byte_level.h"

namespace wideep::tokenizer {

// The id of byte b is b; "th" 256, "the" 257, "in" 258, "er" 259, "Ġt" 260, "he" 261, "Ġthe" 262,
// "ab" 263; added: "<eos>" 264 (special), "<think>" 265.
inline nlohmann::json small_tokenizer_json() {
  using nlohmann::json;
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[std::string(byte_level_char(static_cast<uint8_t>(byte)))] = byte;
  }
  const std::pair<const char*, const char*> pairs[] = {{"t", "h"},   {"th", "e"}, {"i", "n"},
                                                       {"e", "r"},   {"Ġ", "t"},  {"h", "e"},
                                                       {"Ġt", "he"}, {"a", "b"}};
  json merges = json::array();
  for (const auto& [left, right] : pairs) {
    const int next = static_cast<int>(vocab.size());
    vocab[std::string(left) + right] = next;
    merges.push_back(json::array({left, right}));
  }
  const auto added = [](int id, const char* content, bool special) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", {added(264, "<eos>", true), added(265, "<think>", false)}},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab},
                {"merges", merges}}}};
}

}  // namespace wideep::tokenizer
