// SPDX-License-Identifier: Apache-2.0
//
// JSON as Python's json module writes it: floats that JSON does not have are NaN, Infinity and
// -Infinity.
//
// Thread safety: a pure function.
#pragma once

#include <string>

namespace wideep::formats {

// Puts quotes around these words outside of strings, so that the text is JSON. A reader that asks
// for a number then finds a string: it refuses the value, which keys without a reader may have.
void quote_python_numbers(std::string* json);

}  // namespace wideep::formats
