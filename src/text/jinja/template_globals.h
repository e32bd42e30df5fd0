// SPDX-License-Identifier: Apache-2.0
//
// Jinja's functions that every template has: range and dict.
//
// Thread safety: pure functions; the values belong to one rendering.
#pragma once

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// Errors (invalid input): more elements than Jinja's sandbox allows.
ValueResult range_of(const Arguments& arguments);
// The dict that Python's dict() makes of a dict or pairs, and of named arguments.
Result<Dict> dict_of(const Arguments& arguments);
}  // namespace wideep::jinja
