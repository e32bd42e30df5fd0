// SPDX-License-Identifier: Apache-2.0
//
// Numbers in texts, as Python's int() and float() read them. Thread safety: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/value.h"

namespace wideep::jinja {

// int(text) and float(text); nothing: Python raises a ValueError.
std::optional<Value> integer_in(std::string_view text);
std::optional<double> float_in(std::string_view text);

// int(number): towards 0. Nothing: not finite.
std::optional<Value> integer_of(double number);

}  // namespace wideep::jinja
