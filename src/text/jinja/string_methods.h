// SPDX-License-Identifier: Apache-2.0
//
// Python's methods of str. Thread safety: pure functions; values and budget belong to one
// rendering.
#pragma once

#include <map>
#include <string_view>

#include "jinja/value.h"

namespace wideep::jinja {

using Method = ValueResult (*)(const Value& self, const Arguments& arguments);
using Methods = std::map<std::string_view, Method>;

// REQUIRES: self is a string.
const Methods& string_methods();
// Whether Python's str has a method of this name that is not among them.
bool is_other_string_method(std::string_view name);

}  // namespace wideep::jinja
