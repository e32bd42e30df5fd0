// SPDX-License-Identifier: Apache-2.0
//
// What a plain YAML scalar means: decimal integers, numbers and the booleans of YAML 1.1, which the
// Python tools that write these files use. Quoted scalars are strings and nothing else; so are
// numbers with a leading zero, which YAML 1.1 reads as octal and people do not.
#pragma once

#include <cstdint>
#include <optional>

namespace YAML {
class Node;
}

namespace wideep::formats {

std::optional<bool> yaml_boolean(const YAML::Node& node);     // true, no, On, ...
std::optional<int64_t> yaml_integer(const YAML::Node& node);  // 5, -3, 10000.0
std::optional<double> yaml_number(const YAML::Node& node);    // also 0.5, 1e-3; no .inf, no .nan

}  // namespace wideep::formats
