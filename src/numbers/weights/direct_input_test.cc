// SPDX-License-Identifier: Apache-2.0
#include "weights/direct_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::weights {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBlock = DirectInput::kBlockBytes;

struct alignas(kBlock) Blocks : std::array<std::byte, 4 * kBlock> {};

std::string text_of(const Blocks& blocks, size_t bytes) {
  return {reinterpret_cast<const char*>(blocks.data()), bytes};
}

TEST(DirectInput, ReadsUpToTheEndOfAFileThatEndsWithinABlock) {
  const base::ScratchDirectory scratch;
  const std::string content = std::string(kBlock, 'a') + std::string(100, 'b');
  ASSERT_TRUE(formats::write_file(scratch.file("f"), content).ok());
  const auto input = DirectInput::open(scratch.file("f"));
  ASSERT_TRUE(input.ok()) << input.status().message();
  EXPECT_EQ(input->size(), content.size());
  Blocks blocks = {};
  EXPECT_EQ(input->read(0, blocks.data(), content.size()), 0);
  EXPECT_EQ(text_of(blocks, content.size()), content);
  EXPECT_EQ(input->read(kBlock, blocks.data(), 100), 0);
  EXPECT_EQ(text_of(blocks, 100), std::string(100, 'b'));
  EXPECT_EQ(input->read(0, blocks.data(), content.size() + 1), ENODATA);
  EXPECT_EQ(input->read(kBlock, blocks.data(), 101), ENODATA);
  EXPECT_EQ(input->read(2 * kBlock, blocks.data(), 1), ENODATA);
}

// The files of /proc refuse O_DIRECT, as some file systems do.
TEST(DirectInput, ReadsThroughThePageCacheWhereTheFileSystemWantsIt) {
  const std::string path = "/proc/version", content = *formats::read_file(path);
  const auto input = DirectInput::open(path);
  ASSERT_TRUE(input.ok()) << input.status().message();
  EXPECT_FALSE(input->is_direct());
  Blocks blocks = {};
  EXPECT_EQ(input->read(0, blocks.data(), content.size()), 0);
  EXPECT_EQ(text_of(blocks, content.size()), content);
  EXPECT_EQ(input->read(0, blocks.data(), content.size() + 1), ENODATA);
}

TEST(DirectInput, RefusesWhatIsNoFile) {
  const base::ScratchDirectory scratch;
  EXPECT_THAT(DirectInput::open(scratch.file("none")).status().message(),
              HasSubstr("none: No such file or directory"));
  EXPECT_THAT(DirectInput::open(scratch.path()).status().message(),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(scratch.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(DirectInput::open(scratch.file("pipe")).status().message(),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace wideep::weights
