// SPDX-License-Identifier: Apache-2.0
//
// Jinja's functions that every template has: range, dict, cycler and joiner.
//
// Thread safety: pure functions; the values belong to one rendering.
#pragma once

#include <memory>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// Errors (invalid input): more elements than Jinja's sandbox allows.
ValueResult range_of(const Arguments& arguments);
// The dict that Python's dict() makes of a dict or pairs, and of named arguments.
Result<Dict> dict_of(const Arguments& arguments);
// Gives its items in turn: cycler.next(), current, reset().
Result<std::shared_ptr<Object>> cycler_of(const Arguments& arguments);
// A call of it gives nothing the first time, and then the separator.
Result<std::shared_ptr<Object>> joiner_of(const Arguments& arguments);

}  // namespace wideep::jinja
