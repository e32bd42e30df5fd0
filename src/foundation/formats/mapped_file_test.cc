// SPDX-License-Identifier: Apache-2.0
#include "formats/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::formats {
namespace {

using testing::HasSubstr;

TEST(MappedFile, HasTheBytesOfTheFile) {
  const base::ScratchDirectory scratch;
  for (const std::string& content : {std::string("some bytes"), std::string()}) {
    ASSERT_TRUE(write_file(scratch.file("f"), content).ok());
    const auto file = MappedFile::open(scratch.file("f"));
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto* begin = reinterpret_cast<const char*>(file->bytes().data());
    EXPECT_EQ(std::string(begin, begin + file->bytes().size()), content);
  }
}

// Nobody writes to the pipe: opening it must not wait for a writer.
TEST(MappedFile, OnlyRegularFilesAreRead) {
  const base::ScratchDirectory scratch;
  ASSERT_EQ(::mkfifo(scratch.file("pipe.gguf").c_str(), 0600), 0);
  for (const std::string& path : {scratch.file("pipe.gguf"), scratch.path()}) {
    EXPECT_THAT(MappedFile::open(path).status().message(), HasSubstr("not a regular file")) << path;
  }
  EXPECT_THAT(MappedFile::open(scratch.file("none")).status().message(),
              HasSubstr("cannot be read: No such file"));
}

}  // namespace
}  // namespace wideep::formats
