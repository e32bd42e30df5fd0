// SPDX-License-Identifier: Apache-2.0
//
// The disk is made to fail by a limit on the size of files and, where the test may mount, by a
// small file system. After each failure the old file is as it was, and the folder has no file that
// was not there before. A failure would cost a user the placement or the statistics that a run was
// to replace. Links and pipes are refused, since the rename would put a file in their place.
#include "formats/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/scratch_directory.h"

namespace wideep::formats {
namespace {

using base::ScratchDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReadFile, GivesAllBytes) {
  const ScratchDirectory scratch;
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += static_cast<char>(i % 251);
  std::ofstream(scratch.file("a"), std::ios::binary) << bytes;
  const auto content = read_file(scratch.file("a"));
  ASSERT_TRUE(content.ok()) << content.status().message();
  EXPECT_EQ(*content, bytes);
}

TEST(ReadFile, EmptyFileIsEmpty) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("a")).flush();
  const auto content = read_file(scratch.file("a"));
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(*content, "");
}

TEST(ReadFile, ErrorNamesTheMissingFile) {
  const ScratchDirectory scratch;
  const auto content = read_file(scratch.file("none.json"));
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.status().exit_code(), 2);
  EXPECT_THAT(content.status().message(), AllOf(HasSubstr("none.json"), HasSubstr("No such file")));
}

TEST(ReadFile, RefusesADirectory) {
  const ScratchDirectory scratch;
  const auto content = read_file(scratch.path());
  ASSERT_FALSE(content.ok());
  EXPECT_THAT(content.status().message(), AllOf(HasSubstr(scratch.path()), HasSubstr("directory")));
}

TEST(ReadFile, RefusesAnEndlessFile) {
  const auto content = read_file("/dev/zero");
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.status().message(), "/dev/zero: too large: expected at most 256 MiB");
}

TEST(WriteFile, ReplacesTheOldFileAndLeavesNothingElse) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("a")) << "a longer text that was there before";
  ASSERT_TRUE(write_file(scratch.file("a"), "new").ok());
  EXPECT_EQ(content_of(scratch.file("a")), "new");
  EXPECT_EQ(scratch.num_files(), 1);
}

TEST(WriteFile, HasTheUsualPermissions) {
  const ScratchDirectory scratch;
  const mode_t mask = ::umask(022);
  ASSERT_TRUE(write_file(scratch.file("a"), "x").ok());
  ::umask(mask);
  struct stat info{};
  ASSERT_EQ(::stat(scratch.file("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(WriteFile, WorksInTheCurrentDirectory) {
  const ScratchDirectory scratch;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  const Status status = write_file("plain_name", "x");
  std::filesystem::current_path(before);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(content_of(scratch.file("plain_name")), "x");
}

TEST(WriteFile, MissingDirectoryIsAFailure) {
  const ScratchDirectory scratch;
  const Status status = write_file(scratch.file("no/such/file"), "x");
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no/such/file"), HasSubstr("No such file")));
}

TEST(WriteFile, DoesNotReplaceADirectory) {
  const ScratchDirectory scratch;
  std::filesystem::create_directory(scratch.file("d"));
  const Status status = write_file(scratch.file("d"), "x");
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_TRUE(std::filesystem::is_directory(scratch.file("d")));
  EXPECT_EQ(scratch.num_files(), 1);
}

TEST(WriteFile, DoesNotReplaceAPipe) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0) << std::strerror(errno);
  const Status status = write_file(path, "x");
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_EQ(status.message(),
            path + ": cannot be written: expected a regular file or a new name, found a pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(scratch.num_files(), 1);
}

TEST(WriteFile, DoesNotReplaceALink) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("target")) << "old";
  std::filesystem::create_symlink("target", scratch.file("link"));
  const Status status = write_file(scratch.file("link"), "x");
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_THAT(status.message(), HasSubstr("found a symbolic link"));
  EXPECT_TRUE(std::filesystem::is_symlink(scratch.file("link")));
  EXPECT_EQ(content_of(scratch.file("target")), "old");
}

// Limits the size of files that this process writes, during its lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

TEST(WriteFile, FailureHalfwayLeavesTheOldFileAndNothingElse) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("a")) << "old";
  Status status;
  {
    const FileSizeLimit limit(4096);
    status = write_file(scratch.file("a"), std::string(10'000, 'x'));
  }
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(scratch.file("a") + ": cannot be written: "),
                                      HasSubstr("File too large"), Not(HasSubstr("\n"))));
  EXPECT_EQ(content_of(scratch.file("a")), "old");
  EXPECT_EQ(scratch.num_files(), 1);
}

TEST(WriteFile, FullDiskIsOneClearLine) {
  const ScratchDirectory scratch;
  if (::mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here: " << std::strerror(errno);
  }
  const std::string path = scratch.file("out.json");
  const Status status = write_file(path, std::string(200'000, 'x'));
  const int num_files = scratch.num_files();
  const Status fits = write_file(path, "fits");
  ::umount2(scratch.path().c_str(), MNT_DETACH);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_EQ(status.message(), path +
                                  ": cannot be written: No space left on device; free some space "
                                  "or choose another place");
  EXPECT_EQ(num_files, 0);
  EXPECT_TRUE(fits.ok()) << fits.message();
}

TEST(AtomicFile, WithoutCommitTheFileIsRemoved) {
  const ScratchDirectory scratch;
  {
    auto file = AtomicFile::create(scratch.file("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append("x").ok());
    EXPECT_EQ(scratch.num_files(), 1);
    EXPECT_FALSE(std::filesystem::exists(scratch.file("a")));
  }
  EXPECT_EQ(scratch.num_files(), 0);
}

TEST(AtomicFile, ConcurrentWritersOfOnePathDoNotMix) {
  const ScratchDirectory scratch;
  auto first = AtomicFile::create(scratch.file("a"));
  auto second = AtomicFile::create(scratch.file("a"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->append("one").ok());
  ASSERT_TRUE(second->append("two").ok());
  ASSERT_TRUE(second->commit().ok());
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(content_of(scratch.file("a")), "one");
  EXPECT_EQ(scratch.num_files(), 1);
}

}  // namespace
}  // namespace wideep::formats
