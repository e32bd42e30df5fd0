// SPDX-License-Identifier: Apache-2.0
//
// YAML text to a tree that is safe to walk: one document, plain keys, no key twice in a map,
// bounded size, nesting and alias expansion.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "wideep/status.h"

namespace wideep::formats {

inline constexpr size_t kMaxYamlBytes = size_t{16} << 20;
inline constexpr int kMaxYamlDepth = 64;
// Values after the expansion of aliases ("billion laughs" files stop here).
inline constexpr int64_t kMaxYamlNodes = 4'000'000;

// A null node for an empty document. Errors (invalid input): "<name>:<line>: <what>".
Result<YAML::Node> parse_yaml(const std::string& text, const std::string& name);

}  // namespace wideep::formats
