// SPDX-License-Identifier: Apache-2.0
//
// Where each instruction set's table is defined, and what the body needs.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "balance/search/search.h"

namespace wideep::balance::search {

const Search* generic_search();
const Search* avx2_search();
const Search* avx512_search();  // AVX-512 F, BW, DQ and VL

}  // namespace wideep::balance::search
