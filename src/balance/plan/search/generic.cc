// SPDX-License-Identifier: Apache-2.0
#include "plan/search/search.h"
#include "plan/search/tables.h"

namespace wideep::balance::search {
namespace {
#include "plan/search/body.h"
//
#include "plan/search/pairs_body.h"
}  // namespace

const Search* generic_search() {
  static constexpr Search kTable = {.isa = "ref",
                                    .supported = [] { return true; },
                                    .replicate = replicate,
                                    .sort_replicated = sort_replicated,
                                    .fill = fill,
                                    .improve = improve,
                                    .choose_pairs = choose_pairs};
  return &kTable;
}

}  // namespace wideep::balance::search
