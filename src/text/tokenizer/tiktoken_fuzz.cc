// SPDX-License-Identifier: Apache-2.0
//
// Reading any bytes as a file of ranks must give a working tokenizer or a one-line error. The bytes
// are also put after the 256 bytes of a valid file, so that merges are reached.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

std::string bytes_in_base64() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t byte = 0; byte < 256; ++byte) {
    out += {kDigits[byte >> 2], kDigits[byte << 4 & 63], '=', '=', ' '};
    out += std::to_string(byte) + "\n";
  }
  return out;
}

void check_reading(std::string_view text, const std::string& name) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse_ranks(text, name);
  if (!tokenizer.ok()) {
    WIDEEP_CHECK(tokenizer.status().code() == StatusCode::kInvalidInput);
    WIDEEP_CHECK(tokenizer.status().message().find('\n') == std::string::npos);
    return;
  }
  // Ranks are text themselves; NFC leaves it as it is.
  const std::string sample = std::string(text.substr(0, 2000)) + " the \u4E2D\u6587's 123\r\n\xE4";
  const std::vector<int32_t> ids = tokenizer->encode(sample);
  for (const int32_t id : ids) WIDEEP_CHECK(!tokenizer->id_to_token(id).empty());
  WIDEEP_CHECK(tokenizer->decode(ids, false) == replace_invalid_utf8(sample));
}

}  // namespace
}  // namespace wideep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string bytes = wideep::tokenizer::bytes_in_base64();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"tiktoken.model", "hy.tiktoken"}) {
    wideep::tokenizer::check_reading(text, name);
    wideep::tokenizer::check_reading(bytes + std::string(text), name);
  }
  return 0;
}
