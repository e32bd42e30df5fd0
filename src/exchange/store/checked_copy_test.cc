// SPDX-License-Identifier: Apache-2.0
#include "store/checked_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/content_hash.h"

namespace wideep::store {
namespace {

constexpr size_t kMaxBytes = 200'000, kMargin = 128;

class CheckedCopyTest : public ::testing::Test {
 protected:
  CheckedCopyTest() {
    for (std::byte& each : from_) each = static_cast<std::byte>(random_());
  }

  // In pieces of the given lengths, one after the other. Both begin so many bytes behind a boundary
  // of 64.
  void expect_copied(std::span<const size_t> pieces, size_t from_at, size_t to_at) {
    std::byte* const to = aligned(to_) + to_at;
    const std::byte* const from = aligned(from_) + from_at;
    std::ranges::fill(to_, std::byte{0x5a});
    CheckedCopy copy(std::accumulate(pieces.begin(), pieces.end(), uint64_t{0}));
    size_t bytes = 0;
    for (const size_t each : pieces) {
      copy.copy(from + bytes, to + bytes, each);
      bytes += each;
    }
    EXPECT_TRUE(std::equal(from, from + bytes, to));
    EXPECT_EQ(to[bytes], std::byte{0x5a});
    EXPECT_EQ(copy.hash(), base::content_hash(from, bytes)) << bytes << " bytes";
  }

  std::mt19937 random_{1};

 private:
  static std::byte* aligned(std::vector<std::byte>& bytes) {
    const auto at = reinterpret_cast<uintptr_t>(bytes.data()) % 64;
    return bytes.data() + (at == 0 ? 0 : 64 - at);
  }

  std::vector<std::byte> from_ = std::vector<std::byte>(kMaxBytes + 2 * kMargin);
  std::vector<std::byte> to_ = std::vector<std::byte>(kMaxBytes + 2 * kMargin);
};

// The hash is another one up to 240 bytes, and has steps at 64 and 1,024.
TEST_F(CheckedCopyTest, AnyLengthAtOnce) {
  for (size_t bytes = 0; bytes < 4200; ++bytes) {
    expect_copied(std::vector{bytes}, 0, 0);
    expect_copied(std::vector{bytes}, bytes % 64, bytes % 61);
  }
}

TEST_F(CheckedCopyTest, BlocksOfAChain) {
  for (const size_t last : {size_t{1}, size_t{63}, size_t{1024}, size_t{40'000}, size_t{65'536}}) {
    expect_copied(std::vector<size_t>{65'536, 65'536, last}, 0, 0);
    expect_copied(std::vector<size_t>{65'536, 65'536, last}, 0, 8);
  }
}

TEST_F(CheckedCopyTest, AnyPieces) {
  for (int round = 0; round < 500; ++round) {
    std::vector<size_t> pieces(1 + random_() % 8);
    const size_t max_bytes = round % 2 == 0 ? 1500 : kMaxBytes / 8;
    for (size_t& each : pieces) each = random_() % max_bytes;
    expect_copied(pieces, random_() % 64, round % 3 == 0 ? 0 : random_() % 64);
  }
}

}  // namespace
}  // namespace wideep::store
