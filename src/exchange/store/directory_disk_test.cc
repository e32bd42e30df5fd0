// SPDX-License-Identifier: Apache-2.0
//
// Disks that are full, read-only or gone: writing ends with a line, and reading does not.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "base/scratch_directory.h"
#include "store/directory_testing.h"

namespace wideep::store {
namespace {

using namespace directory_testing;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kSegment = uint64_t{1} << 20;
constexpr uint64_t kRecord = 100000;

// Limits, mounts and users are those of a process of its own. Its expectations that fail are
// printed there.
void expect_in_another_process(const std::function<void()>& body) {
  const pid_t process = ::fork();
  if (process == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

int num_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// What was written stays readable while nothing can be written, with one line; and when it can be
// again, with another, it is.
void expect_to_go_on_reading(Directory& directory, const std::vector<Head>& there,
                             const std::string& reason, const std::function<void()>& mend) {
  ::testing::internal::CaptureStderr();
  // What a segment has reserved can be used up.
  uint32_t page = 0;
  while (page < 20 && offer(directory, page_head(7, page, kRecord)) == OfferResult::kTaken) ++page;
  EXPECT_LT(page, 10u);
  for (page = 0; page < 20; ++page) {
    EXPECT_EQ(offer(directory, page_head(8, page, kRecord)), OfferResult::kRefused);
  }
  EXPECT_EQ(directory.counts().failures, 1u);
  EXPECT_THAT(fetch(directory, there), Each(FetchResult::kWhole));
  std::this_thread::sleep_for(Directory::kFirstRetry + std::chrono::milliseconds(50));
  EXPECT_EQ(offer(directory, page_head(8, 0, kRecord)), OfferResult::kRefused);
  EXPECT_EQ(directory.counts().failures, 2u);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(num_lines(lines), 1) << lines;
  EXPECT_THAT(lines, HasSubstr(reason));

  mend();
  ::testing::internal::CaptureStderr();
  std::this_thread::sleep_for(2 * Directory::kFirstRetry + std::chrono::milliseconds(50));
  EXPECT_EQ(offer(directory, page_head(8, 0, kRecord)), OfferResult::kTaken);
  EXPECT_EQ(fetch(directory, page_head(8, 0, kRecord)), FetchResult::kWhole);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("written again"));
  EXPECT_EQ(directory.counts().damaged, 0u);
}

std::vector<Head> write_one(const std::string& path) {
  auto directory = open_directory(path, uint64_t{64} << 20, kSegment);
  const Head head = page_head(1, 0, kRecord);
  EXPECT_EQ(offer(*directory, head), OfferResult::kTaken);
  // So that what follows needs a new segment.
  for (uint32_t page = 0; page < 9; ++page) offer(*directory, page_head(2, page, kRecord));
  return {head};
}

TEST(DirectoryDisk, FilesThatMayNotBeSoLong) {
  const base::ScratchDirectory scratch;
  const std::vector<Head> there = write_one(scratch.path());
  expect_in_another_process([&] {
    const rlimit few = {.rlim_cur = kSegment / 2, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    auto directory = open_directory(scratch.path(), uint64_t{64} << 20, kSegment);
    expect_to_go_on_reading(*directory, there, "File too large", [] {
      const rlimit many = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &many), 0);
    });
  });
}

// A small file system in memory that only this process sees. false: it may not have one.
bool mount_small(const std::string& path) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0) {
    return false;
  }
  return ::mount("none", path.c_str(), "tmpfs", 0, "size=4m") == 0;
}

TEST(DirectoryDisk, FullDisk) {
  const base::ScratchDirectory scratch;
  expect_in_another_process([&] {
    if (!mount_small(scratch.path())) {
      std::printf("no file system can be mounted here: not tested\n");
      return;
    }
    const std::string path = scratch.file("cache");
    const std::vector<Head> there = write_one(path);
    auto directory = open_directory(path, uint64_t{64} << 20, kSegment);
    // Another program fills it: in blocks of less than a segment.
    const std::string other = scratch.file("another program's");
    FILE* file = std::fopen(other.c_str(), "w");
    const std::vector<char> bytes(4096, 'x');
    while (std::fwrite(bytes.data(), bytes.size(), 1, file) == 1 && std::fflush(file) == 0) {
    }
    expect_to_go_on_reading(*directory, there, "No space left on device", [&] {
      std::fclose(file);
      std::filesystem::remove(other);
    });
  });
}

TEST(DirectoryDisk, ReadOnlyFileSystem) {
  const base::ScratchDirectory scratch;
  expect_in_another_process([&] {
    if (!mount_small(scratch.path())) {
      std::printf("no file system can be mounted here: not tested\n");
      return;
    }
    const std::vector<Head> there = write_one(scratch.path());
    const char* path = scratch.path().c_str();
    ASSERT_EQ(::mount("none", path, "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
    auto directory = open_directory(scratch.path(), uint64_t{64} << 20, kSegment);
    expect_to_go_on_reading(*directory, there, "Read-only file system", [&] {
      ASSERT_EQ(::mount("none", path, "tmpfs", MS_REMOUNT, nullptr), 0);
    });
  });
}

TEST(DirectoryDisk, DirectoryOfAnotherUser) {
  const base::ScratchDirectory scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  const std::vector<Head> there = write_one(scratch.path());
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    ::chmod(entry.path().c_str(), 0444);
  }
  expect_in_another_process([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return;
    if (::geteuid() != kNobody) ::chmod(scratch.path().c_str(), 0555);
    if (::access(scratch.path().c_str(), R_OK | X_OK) != 0) {
      std::printf("nobody else may see the temporary directory: not tested\n");
      return;
    }
    auto directory = open_directory(scratch.path(), uint64_t{64} << 20, kSegment);
    ASSERT_NE(directory, nullptr);
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(fetch(*directory, there), Each(FetchResult::kWhole));
    for (uint32_t page = 0; page < 20; ++page) {
      EXPECT_EQ(offer(*directory, page_head(8, page, kRecord)), OfferResult::kRefused);
    }
    EXPECT_EQ(directory->counts().failures, 1u);
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(num_lines(lines), 1) << lines;
    EXPECT_THAT(lines, HasSubstr("Permission denied"));
    // A damaged one cannot leave the disk; nothing else goes wrong.
    directory->forget(there[0].name, Kind::kPage);
    EXPECT_EQ(fetch(*directory, there[0]), FetchResult::kMissing);
    ::chmod(scratch.path().c_str(), 0755);
  });
}

TEST(DirectoryDisk, SomebodyRemovesTheDirectory) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("cache");
  const std::vector<Head> there = write_one(path);
  struct stat state = {};
  ASSERT_EQ(::stat(path.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u);
  auto directory = open_directory(path, uint64_t{64} << 20, kSegment);
  EXPECT_EQ(offer(*directory, page_head(3, 0, kRecord)), OfferResult::kTaken);
  std::filesystem::remove_all(path);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(Directory::kPollInterval + std::chrono::milliseconds(20));
    directory->find(there);
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(num_lines(lines), 1) << lines;
  EXPECT_THAT(lines, HasSubstr("No such file or directory"));
  EXPECT_EQ(offer(*directory, page_head(4, 0, kRecord * 10)), OfferResult::kRefused);
  std::this_thread::sleep_for(Directory::kFirstRetry + std::chrono::milliseconds(50));
  EXPECT_EQ(offer(*directory, page_head(4, 1, kRecord)), OfferResult::kTaken);
  auto other = open_directory(path, uint64_t{64} << 20, kSegment);
  EXPECT_EQ(fetch(*other, page_head(4, 1, kRecord)), FetchResult::kWhole);
}

mode_t mode_of(const std::string& path) {
  struct stat state = {};
  EXPECT_EQ(::stat(path.c_str(), &state), 0) << path;
  return state.st_mode & 0777;
}

// However its path is written it is one directory, for this user alone, and so is what it is in.
TEST(DirectoryDisk, PathsAsPeopleWriteThem) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("new/prompts");
  std::filesystem::create_directory_symlink(path, scratch.file("link"));
  const mode_t umask_before = ::umask(0);
  const Head head = page_head(1, 0, kRecord);
  for (const std::string& written :
       {scratch.path() + "//new//prompts/", path, path + "///", scratch.path() + "/./new/prompts",
        scratch.path() + "/new/other/../prompts", scratch.file("link"),
        scratch.file("link") + "/"}) {
    ::testing::internal::CaptureStderr();
    auto directory = open_directory(written, uint64_t{64} << 20, kSegment);
    ASSERT_NE(directory, nullptr) << written;
    EXPECT_EQ(offer(*directory, head), written.find("//new//") != std::string::npos
                                           ? OfferResult::kTaken
                                           : OfferResult::kKnown);
    EXPECT_EQ(fetch(*directory, head), FetchResult::kWhole);
    // A line with the path as it was written, but for idle slashes.
    std::fclose(std::fopen((path + "/notes.txt").c_str(), "w"));
    std::this_thread::sleep_for(Directory::kPollInterval + std::chrono::milliseconds(20));
    directory->find({&head, 1});
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(lines, HasSubstr("are left alone, notes.txt for one"));
    EXPECT_EQ(lines.find("//"), std::string::npos) << lines;
    EXPECT_EQ(num_lines(lines), 1) << lines;
    std::filesystem::remove(path + "/notes.txt");
  }
  ::umask(umask_before);
  for (const char* made : {"new", "new/prompts", "new/other"}) {
    EXPECT_EQ(mode_of(scratch.file(made)), 0700u) << made;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
  }
}

// A clock that was wrong when files were written, or is now: no decision asks it.
TEST(DirectoryDisk, TimesOfFilesSayNothing) {
  const base::ScratchDirectory scratch;
  const std::vector<Head> there = write_one(scratch.path());
  for (const int64_t seconds : {int64_t{0}, int64_t{8000000000}}) {  // 1970, 2223
    const timespec time = {.tv_sec = seconds, .tv_nsec = 0};
    const std::array<timespec, 2> times = {time, time};
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
      ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times.data(), 0), 0);
    }
    ::testing::internal::CaptureStderr();
    auto directory = open_directory(scratch.path(), uint64_t{64} << 20, kSegment);
    EXPECT_THAT(fetch(*directory, there), Each(FetchResult::kWhole));
    EXPECT_EQ(offer(*directory, page_head(9, seconds == 0 ? 0 : 1, kRecord)), OfferResult::kTaken);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  }
}

TEST(DirectoryDisk, PathsThatCannotBe) {
  const base::ScratchDirectory scratch;
  const auto message = [](const std::string& path, uint64_t max_bytes) {
    const auto directory = Directory::open({.path = path, .max_bytes = max_bytes});
    EXPECT_EQ(directory.status().exit_code(), 2);
    EXPECT_EQ(Directory::check({.path = path, .max_bytes = max_bytes}).message(),
              directory.status().message());
    return directory.ok() ? "" : directory.status().message();
  };
  EXPECT_EQ(message(scratch.path(), 1000),
            "prompt cache " + scratch.path() + ": expected at least 1.0 MiB for it, found 1000 B");
  std::fclose(std::fopen(scratch.file("file").c_str(), "w"));
  EXPECT_EQ(
      message(scratch.file("file"), uint64_t{1} << 30),
      "prompt cache " + scratch.file("file") + ": the directory cannot be read: Not a directory");
  EXPECT_EQ(message(scratch.file("file/below"), uint64_t{1} << 30),
            "prompt cache " + scratch.file("file/below") +
                ": the directory cannot be made: Not a directory");
  EXPECT_TRUE(Directory::check({.path = scratch.file("new"), .max_bytes = uint64_t{1} << 30}).ok());
}

}  // namespace
}  // namespace wideep::store
