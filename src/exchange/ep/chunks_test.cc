// SPDX-License-Identifier: Apache-2.0
#include "ep/chunks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace wideep::ep {
namespace {

TEST(Chunks, NumChunksIsTheSmallestThatFits) {
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 10}, 0), 1);
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 10}, 20), 1);
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 10}, 19), 2);
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 10}, 10), 2);
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 0}, 2), 5);
  EXPECT_EQ(num_chunks(std::vector<int32_t>{10, 1}, 2), 10);  // 2 chunks would be 5 + 1
  EXPECT_EQ(num_chunks(std::vector<int32_t>{0, 0}, 2), 1);
}

TEST(Chunks, CoverEveryTokenOnceWithinTheBound) {
  std::mt19937 rng(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> tokens(1 + rng() % 6);
    for (int32_t& each : tokens) each = static_cast<int32_t>(rng() % 3 == 0 ? 0 : rng() % 200);
    const int64_t bound = static_cast<int64_t>(tokens.size() + rng() % 100);
    const int chunks = num_chunks(tokens, bound);
    std::vector<int> covered(tokens.size(), 0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int64_t all = 0;
      for (size_t rank = 0; rank < tokens.size(); ++rank) {
        const TokenRange range = chunk_of(tokens[rank], chunk, chunks);
        EXPECT_EQ(range.begin, covered[rank]);
        covered[rank] += range.size;
        all += range.size;
      }
      EXPECT_LE(all, bound);
    }
    for (size_t rank = 0; rank < tokens.size(); ++rank) EXPECT_EQ(covered[rank], tokens[rank]);
  }
}

}  // namespace
}  // namespace wideep::ep
