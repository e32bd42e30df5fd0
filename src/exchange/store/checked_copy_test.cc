// SPDX-License-Identifier: Apache-2.0
#include "store/checked_copy.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace wideep::store {
namespace {

TEST(CheckedCopy, CopiesAnyLengthToAnyPlace) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const size_t from_at = random() % 70, to_at = round % 3 == 0 ? 0 : random() % 70;
    const size_t bytes = random() % 100'000;
    std::vector<std::byte> from(from_at + bytes), to(to_at + bytes + 1, std::byte{0});
    for (std::byte& each : from) each = static_cast<std::byte>(random());
    CheckedCopy copy;
    // In pieces, as blocks of a chain are.
    const size_t first = bytes == 0 ? 0 : random() % bytes;
    copy.copy(from.data() + from_at, to.data() + to_at, first);
    copy.copy(from.data() + from_at + first, to.data() + to_at + first, bytes - first);
    EXPECT_EQ(std::vector(from.begin() + static_cast<ptrdiff_t>(from_at), from.end()),
              std::vector(to.begin() + static_cast<ptrdiff_t>(to_at), to.end() - 1));
    EXPECT_EQ(to.back(), std::byte{0});
    EXPECT_EQ(copy.hash(), base::content_hash(from.data() + from_at, bytes));
  }
}

}  // namespace
}  // namespace wideep::store
