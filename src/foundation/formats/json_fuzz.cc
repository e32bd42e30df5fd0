// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a one-line error, or values that stay the same when written and read again;
// and every accessor must work on every key.
#include "formats/json.h"

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/json_parse.h"

namespace {

void use_all(const wideep::formats::JsonObject& object) {
  for (const std::string& key : object.keys()) {
    object.integer_or(key, 0, {.min = -5, .max = 5});
    object.number_or(key, 0);
    object.boolean_or(key, false);
    object.string_or(key, "");
    object.integers_or(key, {});
    if (object.raw().at(key).is_object()) use_all(object.object(key));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using wideep::formats::JsonDocument;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto document = JsonDocument::parse(text, "fuzz");
  if (!document.ok()) {
    WIDEEP_CHECK_EQ(document.status().message().find('\n'), std::string::npos);
    return 0;
  }
  use_all(document->root());
  WIDEEP_CHECK_EQ(document->status().message().find('\n'), std::string::npos);
  const std::string written = document->root().raw().dump();
  const auto again = JsonDocument::parse(written, "fuzz");
  WIDEEP_CHECK(again.ok());
  WIDEEP_CHECK(again->root().raw() == document->root().raw());
  return 0;
}
