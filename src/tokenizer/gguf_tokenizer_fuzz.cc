// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a GGUF file must give a one-line error, or a tokenizer that is the same as the
// tokenizer.json that is made of it.
#include <cstdint>

#include "base/check.h"
#include "formats/gguf.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer.h"

using wideep::formats::GgufFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) return 0;
  const auto parts = wideep::tokenizer::read_gguf_tokenizer(*file);
  if (!parts.ok()) {
    WIDEEP_CHECK_EQ(parts.status().exit_code(), 2);
    WIDEEP_CHECK_EQ(parts.status().message().find('\n'), std::string::npos);
    return 0;
  }
  const auto json = wideep::tokenizer::gguf_tokenizer_json(*file);
  WIDEEP_CHECK(json.ok());
  return 0;
}
