// SPDX-License-Identifier: Apache-2.0
//
// Python's two ways to put values into a text: "%s of %d" % values, and "{} of {n}".format(…).
//
// Thread safety: pure functions; values and budget belong to one rendering.
#pragma once

#include <string_view>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// values: a tuple, a dict for "%(name)s", or a single value. Errors (invalid input): too few or too
// many values; a value of another type than its conversion takes.
// Where the text is marked as safe, the values are escaped and the result is marked, too.
// REQUIRES: text is a string.
ValueResult percent_format(const Value& text, const Value& values, Budget& budget);

// format_map() has no values by position: "{}" and "{0}" are errors.
enum class FieldNames { kAll, kOnlyNames };

// REQUIRES: text is a string. Errors (invalid input): as above; "[", "." and nested fields inside
// braces are not supported.
ValueResult brace_format(const Value& text, const Arguments& arguments,
                         FieldNames names = FieldNames::kAll);

}  // namespace wideep::jinja
