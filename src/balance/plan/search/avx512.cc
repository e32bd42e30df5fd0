// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "plan/search/search.h"
#include "plan/search/tables.h"

#if defined(__clang__)
#pragma clang attribute push(                                                             \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), min_vector_width(512))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
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

const Search* avx512_search() {
  static constexpr Search kTable = {.isa = "avx512",
                                    .supported =
                                        [] {
                                          return __builtin_cpu_supports("avx512f") &&
                                                 __builtin_cpu_supports("avx512bw") &&
                                                 __builtin_cpu_supports("avx512dq") &&
                                                 __builtin_cpu_supports("avx512vl");
                                        },
                                    .replicate = replicate,
                                    .sort_replicated = sort_replicated,
                                    .fill = fill,
                                    .improve = improve,
                                    .choose_pairs = choose_pairs};
  return &kTable;
}

}  // namespace wideep::balance::search
#endif
