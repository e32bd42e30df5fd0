// SPDX-License-Identifier: Apache-2.0
//
// Python's arithmetic: numbers, and "+" and "*" of texts, lists and tuples.
//
// Thread safety: pure functions; values and budget belong to one rendering.
#pragma once

#include <cstdint>
#include <string_view>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

inline constexpr int64_t kMaxRepeated = 1'000'000;  // bytes or elements that "*" makes

// operation: + - * / // % ~. Errors (invalid input): types that have no such operation, an integer
// that int64 does not hold.
ValueResult arithmetic(std::string_view operation, const Value& a, const Value& b, Budget& budget);

// The error about an operation that the types do not have.
Status unsupported(std::string_view operation, const Value& a, const Value& b);

}  // namespace wideep::jinja
