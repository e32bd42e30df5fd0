// SPDX-License-Identifier: Apache-2.0
//
// Character classes of regular expressions that PCRE2 cannot express: intersections ('&&') and
// classes inside classes. They are computed with ICU's tables, and written as ranges.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::tokenizer {

// The class that starts at regex[0] == '[', as a class of ranges for PCRE2; *bytes: its length in
// the expression. Taken: characters, ranges, escapes as in pattern_syntax.h, nested classes,
// complements, '&&' (which binds less than union, as in Oniguruma and in Rust's engines).
// REQUIRES: valid UTF-8. Errors (invalid input): what else a class may hold, nesting beyond eight
// levels, a class without ']'.
Result<std::string> class_as_ranges(std::string_view regex, size_t* bytes);

// "\\p{L}" and the like: the general categories, and Han, on which the tables agree.
bool is_known_property(std::string_view name);

}  // namespace wideep::tokenizer
