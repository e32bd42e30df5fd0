// SPDX-License-Identifier: Apache-2.0
//
// Python's "{} of {n}".format(…), without formats inside the braces.
//
// Thread safety: pure functions; values and budget belong to one rendering.
#pragma once

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// REQUIRES: text is a string. Errors (invalid input): a field without its value; inside braces,
// anything but a name or a number.
ValueResult brace_format(const Value& text, const Arguments& arguments);

}  // namespace wideep::jinja
