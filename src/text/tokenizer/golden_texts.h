// SPDX-License-Identifier: Apache-2.0
//
// For tests: the files that tests/golden/make_tokenizers.py and make_tokenizer_kinds.py write.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::tokenizer {

inline std::string golden_path(const std::string& name) {
  return WIDEEP_SOURCE_DIR "/tests/golden/tokenizers/" + name;
}

// An empty object where the file is missing or no JSON: what uses it fails.
inline nlohmann::json read_golden(const std::string& name) {
  const Result<std::string> text = formats::read_file(golden_path(name));
  Result<nlohmann::json> value = text.ok() ? formats::parse_json(*text, name) : text.status();
  return value.ok() ? *value : nlohmann::json::object();
}

inline std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out.push_back(static_cast<char>(bits >> num_bits));
  }
  return out;
}

// The text of a row of cases.json.
inline std::string text_of(const nlohmann::json& row) {
  if (row.contains("text")) return row.at("text").get<std::string>();
  if (row.contains("base64")) return from_base64(row.at("base64").get<std::string>());
  std::string text;
  for (int i = 0; i < row.at("times").get<int>(); ++i) text += row.at("unit").get<std::string>();
  return text;
}

}  // namespace wideep::tokenizer
