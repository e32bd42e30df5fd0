// SPDX-License-Identifier: Apache-2.0
#include "base/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/aligned_bytes.h"
#include "base/shared_bytes.h"

namespace wideep::base {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

// The kernel's memory policy of the page at `data`; -1 where the system call is not allowed.
int policy_of(void* data) {
  int mode = -1;
  if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0, data, MPOL_F_ADDR) != 0) return -1;
  return mode & ~MPOL_MODE_FLAGS;
}

class Numa : public testing::Test {
 protected:
  void SetUp() override {
    if (policy_of(private_.data()) < 0) GTEST_SKIP() << "this kernel has no memory policies";
  }

  AlignedBytes private_{kBytes};
  SharedBytes shared_ = SharedBytes::create("test", kBytes).value();
};

TEST_F(Numa, DefaultPolicyIsFirstTouch) {
  EXPECT_EQ(policy_of(private_.data()), MPOL_DEFAULT);
  EXPECT_EQ(policy_of(shared_.data()), MPOL_DEFAULT);
}

TEST_F(Numa, SpreadPagesAreInterleaved) {
  ASSERT_TRUE(spread_over_numa_nodes(private_.data(), kBytes));
  ASSERT_TRUE(spread_over_numa_nodes(shared_.data(), kBytes));
  EXPECT_EQ(policy_of(private_.data()), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_of(private_.data() + kBytes - 1), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_of(shared_.data()), MPOL_INTERLEAVE);
  EXPECT_TRUE(shared_.reserve(0, kBytes).ok());
}

TEST_F(Numa, PagesStayNearTheThread) {
  ASSERT_TRUE(keep_near_this_thread(private_.data(), kBytes));
  const int policy = policy_of(private_.data());
  EXPECT_TRUE(policy == MPOL_BIND || policy == MPOL_PREFERRED || policy == MPOL_PREFERRED_MANY)
      << policy;
}

TEST_F(Numa, EmptyRangesAreRefused) {
  EXPECT_FALSE(spread_over_numa_nodes(nullptr, 0));
  EXPECT_FALSE(keep_near_this_thread(nullptr, 0));
}

}  // namespace
}  // namespace wideep::base
