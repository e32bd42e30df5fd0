// SPDX-License-Identifier: Apache-2.0
#include "plan/search/search.h"

#include <cstdlib>

#include "plan/search/tables.h"

namespace wideep::balance::search {

const std::vector<const Search*>& all_searches() {
  static const std::vector<const Search*> tables = {
#if defined(__x86_64__)
      avx512_search(), avx2_search(),
#endif
      generic_search()};
  return tables;
}

const Search& best_search() {
  const char* isa = std::getenv("WIDEEP_ISA");
  const std::string_view wanted = isa == nullptr ? "" : isa;
  const Search* best = nullptr;
  for (const Search* table : all_searches()) {
    if (!table->supported()) continue;
    if (wanted == table->isa) return *table;
    if (best == nullptr) best = table;
  }
  return *best;
}

}  // namespace wideep::balance::search
