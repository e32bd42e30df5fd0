// SPDX-License-Identifier: Apache-2.0
//
// Files of a directory that are not as they were written, or not ours: never wrong bytes, and what
// is whole is found all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "store/directory_testing.h"
#include "store/places.h"

namespace wideep::store {
namespace {

using namespace directory_testing;
using ::testing::Each;
using ::testing::ElementsAre;

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<Head> three_records() {
  return {page_head(1, 0, 100), page_head(1, 1, 5000), page_head(1, 2, 4096)};
}

// A complete segment of three records, as it lies on the disk, and its name.
struct Sample {
  std::string name, bytes;
};
Sample sample() {
  const base::ScratchDirectory scratch;
  {
    constexpr uint64_t kSegment = 10 * kBlockBytes;
    auto directory = open_directory(scratch.path(), uint64_t{1} << 20, kSegment);
    for (const Head& head : three_records()) offer(*directory, head);
    offer(*directory, page_head(2, 0, 30000));  // needs another
  }
  for (const auto& entry : fs::directory_iterator(scratch.path())) {
    const std::string bytes = read(entry.path());
    if (bytes.size() == 8 * kBlockBytes) return {entry.path().filename(), bytes};
  }
  ADD_FAILURE() << "no segment is complete";
  return {};
}

// How many of the three are whole. fetch() sees to their bytes.
int num_whole(const std::string& path, uint64_t& num_damaged) {
  ::testing::internal::CaptureStderr();
  auto directory = open_directory(path);
  if (directory == nullptr) return -1;
  directory->find(three_records());
  int count = 0;
  for (const FetchResult result : fetch(*directory, three_records())) {
    count += result == FetchResult::kWhole;
  }
  ::testing::internal::GetCapturedStderr();
  num_damaged = directory->counts().damaged;
  return count;
}

// In memory: tens of thousands of files. WIDEEP_STORE_BYTES: every so many bytes, 1 for all.
class DirectoryDamage : public ::testing::Test {
 protected:
  DirectoryDamage() {
    // Not wideep-…: tests of the command look there for what it has left.
    if (::mkdtemp(folder_) != nullptr) ::setenv("TMPDIR", folder_, 1);
    if (const char* wanted = std::getenv("WIDEEP_STORE_BYTES")) step_ = std::stoul(wanted);
  }
  ~DirectoryDamage() override {
    ::rmdir(folder_);
    if (before_ == nullptr) {
      ::unsetenv("TMPDIR");
    } else {
      ::setenv("TMPDIR", before_, 1);
    }
  }
  size_t step_ = base::kSanitized ? 97 : 7;

 private:
  char folder_[32] = "/dev/shm/pages-XXXXXX";
  const char* before_ = std::getenv("TMPDIR");
};

// Zeros that fill up a payload's last block are read, and nothing is asked of them.
bool is_filling(size_t at) {
  for (const auto& [begin, end] :
       {std::pair<size_t, size_t>{2 * kBlockBytes + 100, 3 * kBlockBytes},
        {4 * kBlockBytes + 5000, 6 * kBlockBytes}}) {
    if (at >= begin && at < end) return true;
  }
  return false;
}

TEST_F(DirectoryDamage, ABitOfAnyByteIsNoticed) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  const fs::path path = scratch.file(good.name);
  for (size_t at = 0; at < good.bytes.size(); at += step_) {
    std::string bytes = good.bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at / 3 % 8)));
    write(path, bytes);
    uint64_t num_damaged = 0;
    const int count = num_whole(scratch.path(), num_damaged);
    // The segment's own block is of no use for records.
    const bool harmless = at < kBlockBytes || is_filling(at);
    const bool is_other_version = at >= 8 && at < 16;
    if (is_other_version) {
      ASSERT_EQ(count, 0) << at;
      continue;
    }
    ASSERT_EQ(count, harmless ? 3 : 2) << at;
    if (!harmless && at % kBlockBytes >= 16) {
      ASSERT_EQ(num_damaged, 1u) << at;
    }
  }
}

TEST_F(DirectoryDamage, AnyLengthGivesWhatLiesBefore) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  const fs::path path = scratch.file(good.name);
  constexpr size_t kEnds[] = {3 * kBlockBytes, 6 * kBlockBytes, 8 * kBlockBytes};
  for (size_t length = 0; length <= good.bytes.size(); length += step_) {
    for (const size_t exact : {length, length / kBlockBytes * kBlockBytes}) {
      write(path, good.bytes.substr(0, exact));
      int wanted = 0;
      for (const size_t end : kEnds) wanted += end <= exact;
      uint64_t num_damaged = 0;
      ASSERT_EQ(num_whole(scratch.path(), num_damaged), wanted) << exact;
    }
  }
}

TEST_F(DirectoryDamage, RecordsElsewhereAreNone) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  uint64_t num_damaged = 0;
  // At another place of the file, and in the file of another segment.
  std::string moved = good.bytes;
  moved.insert(kBlockBytes, kBlockBytes, '\0');
  write(scratch.file(good.name), moved);
  EXPECT_EQ(num_whole(scratch.path(), num_damaged), 0);
  fs::remove(scratch.file(good.name));
  write(scratch.file("segment-0123456789abcdef.wideep"), good.bytes);
  EXPECT_EQ(num_whole(scratch.path(), num_damaged), 0);
}

TEST_F(DirectoryDamage, WhatIsDamagedIsComputedAndWrittenAgain) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  std::string bytes = good.bytes;
  bytes[5 * kBlockBytes] ^= 1;  // within the payload of the second
  write(scratch.file(good.name), bytes);
  auto directory = open_directory(scratch.path());
  const std::vector<Head> heads = three_records();
  EXPECT_THAT(directory->find(heads), Each(true));
  EXPECT_EQ(fetch(*directory, heads[1]), FetchResult::kDamaged);
  EXPECT_EQ(fetch(*directory, heads[1]), FetchResult::kMissing);
  EXPECT_EQ(directory->counts().damaged, 1u);
  EXPECT_EQ(offer(*directory, heads[1]), OfferResult::kTaken);
  directory = open_directory(scratch.path());
  EXPECT_THAT(fetch(*directory, heads), Each(FetchResult::kWhole));
  EXPECT_EQ(directory->counts().damaged, 0u);  // it has left the disk, too
}

// As a rank reads it: one line says where the damage is, and nothing else changes.
TEST_F(DirectoryDamage, WhatIsDamagedHasOneLine) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  std::string bytes = good.bytes;
  bytes[5 * kBlockBytes] ^= 1;  // within the payload of the second
  write(scratch.file(good.name), bytes);
  std::vector<ListedPlace> list;
  list.push_back({.place = open_directory(scratch.path()), .expected = kDiskPrice});
  Places places(std::move(list));
  const std::vector<Head> heads = three_records();
  std::vector<std::vector<std::byte>> memory;
  for (const Head& head : heads) memory.emplace_back(head.part.bytes());
  std::vector<Wanted> wanted;
  const std::vector<int> where = places.find(heads);
  for (size_t i = 0; i < heads.size(); ++i) {
    wanted.push_back({.order = {heads[i], memory[i]}, .place = where[i]});
  }
  std::vector<FetchResult> results(heads.size());
  ::testing::internal::CaptureStderr();
  places.fetch(wanted, [&](size_t index, FetchResult result, int) {
    results[index] = result;
    return true;
  });
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_NE(lines.find(good.name + ": the record at byte"), std::string::npos) << lines;
  EXPECT_THAT(results,
              ElementsAre(FetchResult::kWhole, FetchResult::kDamaged, FetchResult::kWhole));
  EXPECT_FALSE(places.is_out(0));
}

TEST_F(DirectoryDamage, OtherFilesAreLeftAlone) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  write(scratch.file(good.name), good.bytes);
  write(scratch.file("notes.txt"), "mine");
  write(scratch.file("segment-12.wideep"), "short name");
  write(scratch.file("segment-00000000000000AB.wideep"),
        good.bytes);  // upper case: no name of ours
  fs::create_directory(scratch.file("segment-00000000000000ac.wideep"));
  fs::create_symlink("/etc/passwd", scratch.file("segment-00000000000000ad.wideep"));
  // Of another version, and what a process has left that died before it had begun.
  std::string newer = good.bytes;
  newer[8] = 9;
  write(scratch.file("segment-00000000000000ae.wideep"), newer);
  write(scratch.file("segment-00000000000000af.wideep"), "");
  write(scratch.file("segment-00000000000000b0.wideep"), std::string(20000, '\0'));
  ::testing::internal::CaptureStderr();
  auto directory = open_directory(scratch.path(), uint64_t{1} << 20, uint64_t{64} << 10);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  EXPECT_EQ(directory->counts().foreign, 6u);
  EXPECT_THAT(fetch(*directory, three_records()), Each(FetchResult::kWhole));
  EXPECT_FALSE(fs::exists(scratch.file("segment-00000000000000af.wideep")));
  EXPECT_FALSE(fs::exists(scratch.file("segment-00000000000000b0.wideep")));
  EXPECT_TRUE(fs::exists(scratch.file("segment-00000000000000ae.wideep")));
  // Those of other versions make room first; what is nobody's business stays.
  for (uint32_t page = 0; page < 40; ++page) offer(*directory, page_head(5, page, 20000));
  EXPECT_FALSE(fs::exists(scratch.file("segment-00000000000000ae.wideep")));
  EXPECT_EQ(read(scratch.file("notes.txt")), "mine");
  EXPECT_TRUE(fs::exists(scratch.file("segment-00000000000000AB.wideep")));
  EXPECT_TRUE(fs::is_directory(scratch.file("segment-00000000000000ac.wideep")));
  EXPECT_TRUE(fs::is_symlink(scratch.file("segment-00000000000000ad.wideep")));
}

// However many they are: a line, and another when the first has made room.
TEST_F(DirectoryDamage, ManyOfAnotherVersionHaveOneLine) {
  const Sample good = sample();
  const base::ScratchDirectory scratch;
  std::string newer = good.bytes;
  newer[8] = 9;
  for (char digit : std::string("0123456789abcdef")) {
    write(scratch.file(std::string("segment-00000000000000a") + digit + ".wideep"), newer);
    fs::create_directory(scratch.file(std::string("segment-00000000000000b") + digit + ".wideep"));
  }
  ::testing::internal::CaptureStderr();
  auto directory = open_directory(scratch.path(), uint64_t{1} << 20, uint64_t{64} << 10);
  EXPECT_EQ(directory->counts().foreign, 32u);
  for (uint32_t page = 0; page < 60; ++page) {
    EXPECT_EQ(offer(*directory, page_head(5, page, 20000)), OfferResult::kTaken);
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  EXPECT_FALSE(fs::exists(scratch.file("segment-00000000000000a5.wideep")));
  EXPECT_TRUE(fs::exists(scratch.file("segment-00000000000000b5.wideep")));
}

// They are not found, and make room as all others do.
TEST_F(DirectoryDamage, RecordsOfAnotherModelAreSkipped) {
  const base::ScratchDirectory scratch;
  DirectoryOptions options = {.path = scratch.path(),
                              .max_bytes = uint64_t{1} << 20,
                              .record_class = "another model",
                              .segment_bytes = uint64_t{64} << 10};
  const std::vector<Head> heads = three_records();
  {
    auto other = Directory::open(options);
    ASSERT_TRUE(other.ok());
    for (const Head& head : heads) offer(**other, head);
  }
  auto directory = open_directory(scratch.path(), options.max_bytes, options.segment_bytes);
  EXPECT_THAT(directory->find(heads), Each(false));
  EXPECT_THAT(fetch(*directory, heads), Each(FetchResult::kMissing));
  EXPECT_EQ(directory->counts().foreign, 3u);
  for (uint32_t page = 0; page < 60; ++page) {
    EXPECT_EQ(offer(*directory, page_head(5, page, 20000)), OfferResult::kTaken);
  }
  EXPECT_GE(directory->counts().evicted, 3u);
}

}  // namespace
}  // namespace wideep::store
