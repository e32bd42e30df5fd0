// SPDX-License-Identifier: Apache-2.0
//
// Reading any bytes as a tokenizer.json must give a working tokenizer or a one-line error. Bytes
// that are a JSON object are also merged into a valid file, so that the code after the first
// missing key is reached.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/json_parse.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

void check_reading(std::string_view text) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(text, "fuzz");
  if (!tokenizer.ok()) {
    WIDEEP_CHECK(tokenizer.status().code() == StatusCode::kInvalidInput);
    WIDEEP_CHECK(tokenizer.status().message().find('\n') == std::string::npos);
    return;
  }
  const std::vector<int32_t> ids = tokenizer->encode("Hello  the 123\r\n thing's \xE4\xB8 <eos>");
  for (const int32_t id : ids) WIDEEP_CHECK(!tokenizer->id_to_token(id).empty());
  WIDEEP_CHECK(is_valid_utf8(tokenizer->decode(ids)));
}

}  // namespace
}  // namespace wideep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tokenizer::check_reading(bytes);
  const Result<nlohmann::json> patch = formats::parse_json(bytes, "fuzz");
  if (!patch.ok() || !patch->is_object()) return 0;
  nlohmann::json merged = tokenizer::small_tokenizer_json();
  merged.merge_patch(*patch);
  tokenizer::check_reading(merged.dump());
  return 0;
}
