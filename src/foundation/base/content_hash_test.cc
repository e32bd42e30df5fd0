// SPDX-License-Identifier: Apache-2.0
#include "base/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace wideep::base {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 rng(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

TEST(ContentHash, CopyReturnsTheHashOfTheSource) {
  for (const size_t count :
       {size_t{0}, size_t{64}, HashedCopy::kPieceBytes, 3 * HashedCopy::kPieceBytes + 77}) {
    const auto from = random_bytes(count);
    std::vector<std::byte> to(count);
    const uint64_t hash = copy_and_hash(from.data(), to.data(), count, [] { return true; });
    EXPECT_EQ(to, from);
    EXPECT_EQ(hash, content_hash(from.data(), count));
  }
}

TEST(ContentHash, PiecesHaveTheHashOfTheWhole) {
  const auto bytes = random_bytes(100'000);
  StreamedHash hash;
  for (const size_t piece : {size_t{1}, size_t{64}, size_t{4096}, bytes.size()}) {
    hash.reset();
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hash.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
    EXPECT_EQ(hash.hash(), content_hash(bytes.data(), bytes.size())) << piece;
  }
}

TEST(ContentHash, EveryBitChangesTheHash) {
  auto bytes = random_bytes(1000);
  const uint64_t hash = content_hash(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); i += 37) {
    bytes[i] ^= std::byte{1};
    EXPECT_NE(content_hash(bytes.data(), bytes.size()), hash);
    bytes[i] ^= std::byte{1};
  }
}

TEST(ContentHash, CopyEndsWhenTheCallbackReturnsFalse) {
  const auto from = random_bytes(4 * HashedCopy::kPieceBytes);
  std::vector<std::byte> to(from.size());
  int pieces = 0;
  copy_and_hash(from.data(), to.data(), from.size(), [&] { return ++pieces < 2; });
  EXPECT_EQ(pieces, 2);
  EXPECT_EQ(to.back(), std::byte{0});
}

}  // namespace
}  // namespace wideep::base
