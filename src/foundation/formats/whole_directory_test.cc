// SPDX-License-Identifier: Apache-2.0
#include "formats/whole_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::formats {
namespace {

namespace fs = std::filesystem;

TEST(WholeDirectory, AppearsWithAllOfItsFiles) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("records/one");
  {
    auto directory = WholeDirectory::create(path);
    ASSERT_TRUE(directory.ok()) << directory.status().message();
    ASSERT_TRUE(write_file(directory->path() + "/file", "x").ok());
    EXPECT_FALSE(fs::exists(path));
    EXPECT_FALSE(WholeDirectory::create(path).ok());  // one at a time
    EXPECT_TRUE(directory->finish().ok());
  }
  EXPECT_TRUE(fs::exists(path + "/file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.file("records")), {}), 1);
}

TEST(WholeDirectory, LeavesNothingWhereItIsNotFinished) {
  const base::ScratchDirectory scratch;
  {
    auto directory = WholeDirectory::create(scratch.file("records/one"));
    ASSERT_TRUE(directory.ok());
    ASSERT_TRUE(write_file(directory->path() + "/file", "x").ok());
  }
  EXPECT_FALSE(fs::exists(scratch.file("records")));
}

TEST(WholeDirectory, NeverReplacesOneThatHasFiles) {
  const base::ScratchDirectory scratch;
  auto directory = WholeDirectory::create(scratch.file("one"));
  ASSERT_TRUE(directory.ok());
  fs::create_directory(scratch.file("one"));
  ASSERT_TRUE(write_file(scratch.file("one/file"), "theirs").ok());
  EXPECT_FALSE(directory->finish().ok());
  EXPECT_EQ(*read_file(scratch.file("one/file")), "theirs");
}

TEST(WholeDirectory, OnlyWhatDeadProcessesLeftIsRemoved) {
  const base::ScratchDirectory scratch;
  const auto being_written = WholeDirectory::create(scratch.file("alive"));
  ASSERT_TRUE(being_written.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto left = WholeDirectory::create(scratch.file("dead"));
    if (left.ok()) [[maybe_unused]]
      const Status file = write_file(left->path() + "/file", "x");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(scratch.file("dead.unfinished/file")));
  WholeDirectory::remove_leftovers(scratch.path());
  EXPECT_FALSE(fs::exists(scratch.file("dead.unfinished")));
  EXPECT_TRUE(fs::exists(being_written->path()));
  WholeDirectory::remove_leftovers(scratch.file("nowhere"));
}

}  // namespace
}  // namespace wideep::formats
