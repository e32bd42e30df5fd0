// SPDX-License-Identifier: Apache-2.0
#include "base/shared_bytes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace wideep::base {
namespace {

TEST(SharedBytes, ForkedProcessSharesTheMemory) {
  auto bytes = SharedBytes::create("test", 10'000);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(bytes->size(), 10'000u);
  EXPECT_EQ(bytes->data()[9'999], std::byte{0});
  ASSERT_TRUE(bytes->reserve(5'000, 5'000).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    bytes->data()[9'999] = std::byte{7};
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(bytes->data()[9'999], std::byte{7});
}

TEST(SharedBytes, FallsBackToNormalPages) {
  auto bytes = SharedBytes::create("test", size_t{1} << 20, SharedPages::kHugeIfReserved);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  ASSERT_TRUE(bytes->reserve(0, bytes->size()).ok());
  bytes->data()[bytes->size() - 1] = std::byte{1};
}

TEST(SharedBytes, TooMuchMemoryIsAnError) {
  const auto bytes = SharedBytes::create("host pool", size_t{1} << 62);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.status().message().rfind("host pool: cannot map 4611686018427387904 bytes", 0),
            0u)
      << bytes.status().message();
}

}  // namespace
}  // namespace wideep::base
