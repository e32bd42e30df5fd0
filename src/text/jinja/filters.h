// SPDX-License-Identifier: Apache-2.0
//
// The tables of Jinja's filters, by kind, and what they share.
//
// Thread safety: pure functions; values and budget belong to one rendering.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "jinja/arguments.h"
#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

using FilterFunction = ValueResult (*)(const Value& input, ArgumentReader& arguments);
using Filters = std::map<std::string_view, FilterFunction>;

const Filters& text_filters();
const Filters& list_filters();

// The error about an argument of a type that a filter does not take.
Status unfit(std::string_view argument, std::string_view expected, const Value& found);
// The result of a method of Python's str: marked as safe if the input is.
Value kept_safe(const Value& input, std::string text);
// Python's len(). Errors: a value without a length.
Result<int64_t> length_of(const Value& value, Budget& budget);

}  // namespace wideep::jinja
