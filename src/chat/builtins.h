// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters and tests, and Python's methods, as far as chat templates use them. One that is
// not here is an error that names it.
#pragma once

#include <string_view>

#include "chat/value.h"
#include "wideep/status.h"

namespace wideep::chat {

// Errors (invalid input): an unknown name, arguments that do not fit. Messages begin with the name.
ValueResult apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
ValueResult apply_test(std::string_view name, const Value& input, const Arguments& arguments);

// Whether there is one of that name, so that a template is refused before it is used.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// value.name, where that is a method of value's type: a function; else undefined.
Value method_of(const Value& value, std::string_view name);

// The elements that a loop sees, a step for each. Errors: a value that has none.
Result<List> elements_of(const Value& value, Budget& budget);
// value[index]. Undefined where it has none. Errors: value is undefined itself.
ValueResult item_of(const Value& value, const Value& index, Budget& budget);
// value.name: an attribute of an object; of other values a method, or the entry of a dict.
ValueResult attribute_of(const Value& value, std::string_view name);
// item in container.
Result<bool> is_in(const Value& item, const Value& container, Budget& budget);

}  // namespace wideep::chat
