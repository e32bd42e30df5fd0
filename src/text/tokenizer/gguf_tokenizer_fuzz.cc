// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a GGUF file must give a one-line error, or a tokenizer, the tokenizer.json of which
// is a one-line error or encodes and decodes any text.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "tensor_files/gguf.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

using namespace wideep;  // NOLINT: a program of its own
using tensor_files::GgufFile;
using tensor_files::GgufValue;
using tokenizer::Tokenizer;

namespace {

void expect_one_line(const Status& status) {
  WIDEEP_CHECK_EQ(status.exit_code(), 2);
  WIDEEP_CHECK_EQ(status.message().find('\n'), std::string::npos);
}

// Words, digits, spaces and bytes that are no text, and the last tokens of the file.
std::string text_for(const GgufFile& file) {
  std::string text = "a ab  ba 12\r\n it's \xE4\xB8 ";
  const GgufValue& tokens = *file.find("tokenizer.ggml.tokens");
  for (size_t i = tokens.size() - std::min<size_t>(tokens.size(), 3); i < tokens.size(); ++i) {
    text += tokens.text(i).value_or("").substr(0, 16);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) return 0;
  const auto parts = tokenizer::read_gguf_tokenizer(*file);
  if (!parts.ok()) {
    expect_one_line(parts.status());
    return 0;
  }
  const auto json = tokenizer::gguf_tokenizer_json(*file);
  WIDEEP_CHECK(json.ok());
  const auto written = Tokenizer::parse(*json, "fuzz.json");
  // Tokens that are no text, and bytes without a token, have no form in JSON.
  if (!written.ok()) {
    expect_one_line(written.status());
    return 0;
  }
  const std::vector<int32_t> ids = written->encode(text_for(*file), true);
  for (const int32_t id : ids) WIDEEP_CHECK(id >= 0 && id < written->id_limit());
  WIDEEP_CHECK(tokenizer::is_valid_utf8(written->decode(ids)));
  return 0;
}
