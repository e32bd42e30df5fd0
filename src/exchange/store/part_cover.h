// SPDX-License-Identifier: Apache-2.0
//
// Which of several parts of a record another part can be put together of.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "store/record.h"

namespace wideep::store {

// Indices of parts in `from` which together have all of `to`, those that have the most of it first;
// one alone if one has all. Empty: something of it is in none, or it has no bytes.
std::vector<size_t> parts_that_cover(const Part& to, std::span<const Part> from);

}  // namespace wideep::store
