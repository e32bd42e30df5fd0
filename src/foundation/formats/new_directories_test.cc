// SPDX-License-Identifier: Apache-2.0
#include "formats/new_directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::formats {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

TEST(NewDirectories, EmptyOnesAreRemovedAndFullOnesStay) {
  const base::ScratchDirectory scratch;
  const std::string outer = scratch.file("a");
  for (const char* name : {"/b/c", "/b/c/"}) {
    {
      const auto made = NewDirectories::create(outer + name);
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_TRUE(fs::is_empty(outer + "/b/c"));
    }
    EXPECT_FALSE(fs::exists(outer));
  }
  {
    const auto made = NewDirectories::create(outer + "/b/c");
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(write_file(outer + "/file", "x").ok());
  }
  EXPECT_TRUE(fs::exists(outer + "/file"));
  EXPECT_FALSE(fs::exists(outer + "/b"));
}

TEST(NewDirectories, ADirectoryThatWasThereStays) {
  const base::ScratchDirectory scratch;
  {
    ASSERT_TRUE(NewDirectories::create(scratch.path()).ok());
  }
  EXPECT_TRUE(fs::is_directory(scratch.path()));
}

TEST(NewDirectories, MovedOnesAreRemovedOnce) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("a");
  {
    auto first = NewDirectories::create(path);
    ASSERT_TRUE(first.ok());
    const NewDirectories second = std::move(*first);
    first = failed("gone");
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(NewDirectories, ErrorsAreOfTheCallerAndLeaveNothing) {
  const base::ScratchDirectory scratch;
  ASSERT_TRUE(write_file(scratch.file("file"), "x").ok());
  for (const std::string& path : {scratch.file("file"), scratch.file("file/below/it"),
                                  std::string("/proc/wideep"), std::string()}) {
    const Status status = NewDirectories::create(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidInput) << path;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
}

}  // namespace
}  // namespace wideep::formats
