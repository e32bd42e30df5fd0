// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters and tests, and Python's methods of strings, dicts and lists, as far as chat
// templates use them. Any other is an error that names it.
//
// Thread safety: pure functions; values and budget belong to one rendering.
#pragma once

#include <string_view>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// Errors (invalid input): an unknown name, wrong arguments. Messages begin with the name.
ValueResult apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
ValueResult apply_test(std::string_view name, const Value& input, const Arguments& arguments);

// Whether the name is known: the parser checks it, so that a template is refused before it is used.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
// The error about a name that is not known, with those that are.
Status unknown_filter(std::string_view name);
Status unknown_test(std::string_view name);

// value.name as a bound method: a function, or undefined if value's type has no such method.
Value method_of(const Value& value, std::string_view name);

// The hash text of a dict's key. Errors: Python has no hash for it.
Result<std::string> key_text(const Value& key, Budget& budget);

// The elements of a value, as a loop iterates over them: costs a step for each. Errors: a value
// that is not iterable.
Result<List> elements_of(const Value& value, Budget& budget);
// value[index]; undefined if there is no such item. Errors: value is undefined.
ValueResult item_of(const Value& value, const Value& index, Budget& budget);
// value.name: an attribute of an object, a method, or an entry of a dict. Errors: value is
// undefined.
ValueResult attribute_of(const Value& value, std::string_view name);
// The expression "item in container".
Result<bool> is_in(const Value& item, const Value& container, Budget& budget);

}  // namespace wideep::jinja
