// SPDX-License-Identifier: Apache-2.0
//
// The table of each instruction set, and the headers that body.h and pairs_body.h use.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace wideep::balance::search {

struct Search;

const Search* generic_search();
const Search* avx2_search();
const Search* avx512_search();  // AVX-512 F, BW, DQ and VL

}  // namespace wideep::balance::search
