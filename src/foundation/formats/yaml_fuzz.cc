// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a one-line error, or a map on which every accessor works.
#include "formats/yaml.h"

#include <cstdint>
#include <string>

#include "base/check.h"

namespace {

// Accessors reach nested maps only; parse_yaml has already walked the values inside lists.
void use_all(wideep::formats::YamlMap map, int64_t& budget) {
  for (const std::string& key : map.keys()) {
    if (--budget < 0) return;
    if (!map.has(key)) continue;
    map.integer_or(key, 0, {.min = -5, .max = 5});
    map.number_or(key, 0);
    map.boolean_or(key, false);
    map.string_or(key, "");
    map.integers(key);
    if (map.is_map(key)) use_all(map.map(key), budget);
  }
  map.refuse_unknown_keys();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto document = wideep::formats::YamlDocument::parse(text, "fuzz");
  if (!document.ok()) {
    WIDEEP_CHECK_EQ(document.status().message().find('\n'), std::string::npos);
    return 0;
  }
  int64_t budget = 10'000;
  use_all(document->root(), budget);
  document->root().integer("missing");
  WIDEEP_CHECK_EQ(document->status().message().find('\n'), std::string::npos);
  return 0;
}
