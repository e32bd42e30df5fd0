// SPDX-License-Identifier: Apache-2.0
//
// Python's methods of str. Thread safety: pure functions; values and budget belong to one
// rendering.
#pragma once

#include <map>
#include <string_view>

#include "chat/value.h"

namespace wideep::chat {

using Method = ValueResult (*)(const Value& self, const Arguments& arguments);
using Methods = std::map<std::string_view, Method>;

// REQUIRES: self is a string.
const Methods& string_methods();

}  // namespace wideep::chat
