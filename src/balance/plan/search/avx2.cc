// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "plan/search/search.h"
#include "plan/search/tables.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace wideep::balance::search {
namespace {
#include "plan/search/body.h"
//
#include "plan/search/pairs_body.h"
}  // namespace
}  // namespace wideep::balance::search

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace wideep::balance::search {

const Search* avx2_search() {
  static constexpr Search kTable = {.isa = "avx2",
                                    .supported = [] { return __builtin_cpu_supports("avx2") != 0; },
                                    .replicate = replicate,
                                    .sort_replicated = sort_replicated,
                                    .fill = fill,
                                    .improve = improve,
                                    .choose_pairs = choose_pairs};
  return &kTable;
}

}  // namespace wideep::balance::search
#endif
