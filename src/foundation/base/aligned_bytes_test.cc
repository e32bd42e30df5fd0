// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace wideep::base {
namespace {

TEST(AlignedBytes, AreZeroedAlignedAndMovable) {
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{300} << 10, (size_t{5} << 20) + 1}) {
    AlignedBytes bytes(size);
    ASSERT_EQ(bytes.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
    EXPECT_TRUE(std::all_of(bytes.data(), bytes.data() + size,
                            [](std::byte value) { return value == std::byte{0}; }));
    bytes.data()[size - 1] = std::byte{7};
    const AlignedBytes moved = std::move(bytes);
    EXPECT_EQ(moved.data()[size - 1], std::byte{7});
  }
  EXPECT_EQ(AlignedBytes(0).size(), 0u);
}

}  // namespace
}  // namespace wideep::base
