// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding any bytes with a small tokenizer must give them back, with U+FFFD for
// ill-formed UTF-8; decoding token by token must give the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    Result<Tokenizer> result = Tokenizer::parse(small_tokenizer_json().dump(), "small");
    WIDEEP_CHECK(result.ok());
    return *result;
  }();
  return instance;
}

void check_round_trip(std::string_view text) {
  const std::string expected = replace_invalid_utf8(text);
  WIDEEP_CHECK(is_valid_utf8(expected));
  WIDEEP_CHECK_EQ(is_valid_utf8(text), expected == text);
  const std::vector<int32_t> ids = tokenizer().encode(text);
  WIDEEP_CHECK(tokenizer().decode(ids, false) == expected);
}

// Turns the bytes into ids from −20 to 362, so that ids without a token occur too.
void check_stream(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char byte : bytes) ids.push_back(static_cast<uint8_t>(byte) * 3 / 2 - 20);
  for (const bool skip : {false, true}) {
    StreamDecoder decoder(tokenizer(), skip);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    text += decoder.flush();
    WIDEEP_CHECK(text == tokenizer().decode(ids, skip));
  }
}

}  // namespace
}  // namespace wideep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  wideep::tokenizer::check_round_trip(bytes);
  wideep::tokenizer::check_stream(bytes);
  return 0;
}
