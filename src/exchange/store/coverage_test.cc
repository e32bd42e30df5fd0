// SPDX-License-Identifier: Apache-2.0
#include "store/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace wideep::store {
namespace {

Part random_part(std::mt19937& random, uint64_t layers, uint64_t layer_bytes) {
  const uint64_t first_layer = random() % layers, first = random() % layer_bytes;
  const uint64_t count = 1 + random() % (layers - first_layer);
  return {.first = first_layer * layer_bytes + first,
          .length = 1 + random() % (layer_bytes - first),
          .stride = layer_bytes,
          .count = count};
}

// Byte by byte, with the function that will copy them.
TEST(Coverage, CountsTheBytesThatAreCopied) {
  std::mt19937 random(5);
  int num_whole = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint64_t layers = 1 + random() % 5, layer_bytes = 1 + random() % 12;
    const Part wanted = random_part(random, layers, layer_bytes);
    Coverage coverage(wanted);
    std::vector<std::byte> there(wanted.bytes(), std::byte{0});
    for (int i = 0; i < 6; ++i) {
      const Part part = random_part(random, layers, layer_bytes);
      const std::vector<std::byte> ones(part.bytes(), std::byte{1});
      const auto before = std::count(there.begin(), there.end(), std::byte{1});
      copy_overlap(part, ones, wanted, there);
      const auto after = std::count(there.begin(), there.end(), std::byte{1});
      ASSERT_EQ(coverage.add(part), static_cast<uint64_t>(after - before));
      ASSERT_EQ(coverage.is_whole(), static_cast<uint64_t>(after) == wanted.bytes());
    }
    num_whole += coverage.is_whole();
  }
  EXPECT_GT(num_whole, 100);
  EXPECT_LT(num_whole, 2900);
}

}  // namespace
}  // namespace wideep::store
