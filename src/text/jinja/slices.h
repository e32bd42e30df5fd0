// SPDX-License-Identifier: Apache-2.0
//
// Python's value[start:stop:step] of texts, lists, tuples and ranges. Thread safety: pure
// functions.
#pragma once

#include "jinja/value.h"

namespace wideep::jinja {

// A bound that is none is absent. Errors (invalid input): types that have no such operation.
ValueResult slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
                     Budget& budget);

}  // namespace wideep::jinja
