// SPDX-License-Identifier: Apache-2.0
#include "weights/sampled_hash.h"

#include <gtest/gtest.h>

namespace wideep::weights {
namespace {

using Shape = std::vector<int64_t>;

std::string hash_of(std::string_view name, std::string_view type, const Shape& shape,
                    const std::vector<std::byte>& bytes) {
  return sampled_hash({{"another", "F32", {}, {}}, {name, type, shape, bytes}});
}

TEST(SampledHash, NamesTypesAndShapesCount) {
  const std::vector<std::byte> bytes(64);
  const std::string hash = hash_of("a", "BF16", {4, 8}, bytes);
  EXPECT_EQ(hash, hash_of("a", "BF16", {4, 8}, std::vector(bytes)));
  EXPECT_NE(hash, hash_of("b", "BF16", {4, 8}, bytes));
  EXPECT_NE(hash, hash_of("a", "F16", {4, 8}, bytes));
  EXPECT_NE(hash, hash_of("a", "BF16", {8, 4}, bytes));
  EXPECT_EQ(sampled_hash({}), sampled_hash({}));
}

TEST(SampledHash, EachByteOfASmallTensorCounts) {
  std::vector<std::byte> bytes(4096);
  const std::string before = hash_of("a", "U8", {4096}, bytes);
  for (const size_t at : {0, 1023, 1024, 2500, 4095}) {
    bytes[at] = std::byte{1};
    EXPECT_NE(hash_of("a", "U8", {4096}, bytes), before) << at;
    bytes[at] = std::byte{0};
  }
}

// One expert of all in a tensor may have been trained.
TEST(SampledHash, PiecesOfALargeTensorAreSpread) {
  constexpr size_t kMiB = size_t{1} << 20, kSize = 64 * kMiB;
  std::vector<std::byte> bytes(kSize);
  const std::string before = hash_of("a", "U8", {kSize}, bytes);
  for (const size_t at : {size_t{0}, 13 * kMiB, 40 * kMiB, kSize - 5 * kMiB}) {
    const auto from = bytes.begin() + static_cast<ptrdiff_t>(at);
    std::fill_n(from, 5 * kMiB, std::byte{1});
    EXPECT_NE(hash_of("a", "U8", {kSize}, bytes), before) << at;
    std::fill_n(from, 5 * kMiB, std::byte{0});
  }
  bytes.back() = std::byte{1};
  EXPECT_NE(hash_of("a", "U8", {kSize}, bytes), before);
}

}  // namespace
}  // namespace wideep::weights
