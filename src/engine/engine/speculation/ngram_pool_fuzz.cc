// SPDX-License-Identifier: Apache-2.0
// Streams of tokens, added as the drafter adds them: the pool agrees with the slow one.
#include <fuzzer/FuzzedDataProvider.h>

#include "base/check.h"
#include "engine/speculation/ngram_pool.h"
#include "engine/speculation/ngram_pool_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace wideep::engine;
  FuzzedDataProvider data(bytes, size);
  const NgramOptions options{.max_draft_len = data.ConsumeIntegralInRange(1, 6),
                             .max_matching_ngram_size = data.ConsumeIntegralInRange(1, 4),
                             .is_use_oldest = data.ConsumeBool()};
  const int32_t vocabulary = data.ConsumeIntegralInRange(1, 5);
  NgramPool pool(options);
  SlowPool slow(options);
  NgramOptions little = options;
  little.max_bytes = data.ConsumeIntegralInRange(1, 4000);
  NgramPool small(little);
  std::vector<int32_t> text;
  while (data.remaining_bytes() > 0) {
    if (data.ConsumeIntegralInRange(0, 15) == 0) text.clear();
    for (int more = data.ConsumeIntegralInRange(0, 3); more > 0; --more) {
      text.push_back(data.ConsumeIntegralInRange(0, vocabulary));
    }
    const size_t open = std::min<size_t>(text.size(), 14);
    const std::vector<int32_t> end(text.end() - static_cast<std::ptrdiff_t>(open), text.end());
    pool.add(end);
    slow.add(end);
    small.add(end);
    const NgramPool::Found found = pool.find(text);
    const std::vector<int32_t> expected = slow.find(text);
    WIDEEP_CHECK(
        std::equal(found.tokens.begin(), found.tokens.end(), expected.begin(), expected.end()));
    WIDEEP_CHECK_EQ(pool.num_patterns(), slow.num_patterns());
    WIDEEP_CHECK_EQ(pool.num_matches(), slow.num_matches());
    WIDEEP_CHECK(small.bytes() <= little.max_bytes || small.num_patterns() == 1);
    small.find(text);
  }
  return 0;
}
