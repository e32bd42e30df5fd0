// SPDX-License-Identifier: Apache-2.0
#include "engine/yield.h"

namespace wideep::engine {

int words_of_yields(int max_batch_size, int max_draft_len) {
  return max_batch_size * (2 + max_draft_len + 1 + max_draft_len);
}

void pack(std::span<const Yield> yields, std::vector<int32_t>* words) {
  words->clear();
  for (const Yield& yield : yields) {
    for (const std::vector<int32_t>* list : {&yield.tokens, &yield.drafts}) {
      words->push_back(static_cast<int32_t>(list->size()));
      words->insert(words->end(), list->begin(), list->end());
    }
  }
}

std::vector<Yield> unpack_yields(std::span<const int32_t> words) {
  std::vector<Yield> yields;
  while (!words.empty()) {
    Yield& yield = yields.emplace_back();
    for (std::vector<int32_t>* list : {&yield.tokens, &yield.drafts}) {
      const auto count = static_cast<size_t>(words.front());
      const std::span<const int32_t> found = words.subspan(1, count);
      list->assign(found.begin(), found.end());
      words = words.subspan(1 + count);
    }
  }
  return yields;
}

}  // namespace wideep::engine
