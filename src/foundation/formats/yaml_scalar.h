// SPDX-License-Identifier: Apache-2.0
//
// The value of a plain YAML scalar: a decimal integer, a number, or a boolean of YAML 1.1, the
// version of the Python tools that write these files. A quoted scalar is always a string. So is a
// number with a leading zero, which YAML 1.1 would read as octal.
//
// Thread safety: pure functions.
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
