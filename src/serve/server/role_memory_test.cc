// SPDX-License-Identifier: Apache-2.0
#include "server/role_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace wideep::server {
namespace {

TEST(RoleMemoryTest, OtherProcessesGoOnWithIt) {
  RoleMemory memory = RoleMemory::create(engine::Role::kPrefill).value();
  EXPECT_EQ(memory.role(), engine::Role::kPrefill);
  EXPECT_EQ(memory.epoch(), 0u);
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 300; ++i) memory.change(engine::Role::kDecode);
    ::_exit(0);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(memory.role(), engine::Role::kDecode);
  EXPECT_EQ(memory.epoch(), 300u);
  EXPECT_NE(memory.instance(), RoleMemory::create(engine::Role::kBoth)->instance());
}

}  // namespace
}  // namespace wideep::server
