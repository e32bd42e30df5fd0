// SPDX-License-Identifier: Apache-2.0
//
// HTML escapes, as Python's markupsafe writes them. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// The text with escapes for & < > ' ". Charged for the longest possible result.
std::string escaped(std::string_view text, Budget& budget);
// str(value), escaped unless it is text marked as safe.
std::string escaped_value(const Value& value, Budget& budget);
// The text with the characters that references such as &amp; and &#8217; stand for, as Python's
// html.unescape(). Errors (invalid input): a name of a character that is not in a short list.
Result<std::string> unescaped(std::string_view text);

}  // namespace wideep::jinja
