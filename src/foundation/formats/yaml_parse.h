// SPDX-License-Identifier: Apache-2.0
//
// Parses YAML text into a tree that is safe to walk: one document, scalar keys, no duplicate keys
// in a map, bounded size, nesting and alias expansion.
//
// Thread safety: pure functions.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "wideep/status.h"

namespace wideep::formats {

inline constexpr size_t kMaxYamlBytes = size_t{16} << 20;
inline constexpr int kMaxYamlDepth = 64;
// The number of values after the expansion of aliases, which stops "billion laughs" files.
inline constexpr int64_t kMaxYamlNodes = 4'000'000;

// Returns a null node for an empty document. Errors (invalid input): "<name>:<line>: <what>".
Result<YAML::Node> parse_yaml(const std::string& text, const std::string& name);

}  // namespace wideep::formats
