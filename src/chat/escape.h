// SPDX-License-Identifier: Apache-2.0
//
// HTML escapes, as Python's markupsafe writes them. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "chat/budget.h"
#include "chat/value.h"

namespace wideep::chat {

// The text with escapes for & < > ' ". Charged for the longest possible result.
std::string escaped(std::string_view text, Budget& budget);
// str(value), escaped unless it is text marked as safe.
std::string escaped_value(const Value& value, Budget& budget);

}  // namespace wideep::chat
