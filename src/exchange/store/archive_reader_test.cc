// SPDX-License-Identifier: Apache-2.0
#include "store/archive_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "store/directory_testing.h"

namespace wideep::store {
namespace {

using namespace directory_testing;

// Of several segments, in the order in which they were written.
TEST(ArchiveReaderTest, AllRecordsComeInOrder) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/archive";
  constexpr uint32_t kPages = 12;
  constexpr uint64_t kBytes = 20'000;
  {
    const auto directory = open_directory(path, uint64_t{1} << 24, /*segment_bytes=*/64 << 10);
    for (uint32_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(offer(*directory, page_head(1, page, kBytes), 0.25), OfferResult::kTaken);
    }
    ASSERT_TRUE(directory->complete().ok());
  }
  uint32_t next = 0;
  std::vector<uint32_t> taken;
  const auto unread = read_archive(
      path, {.wants =
                 [&](const RecordHead& record) {
                   EXPECT_EQ(record.head.page, next++);
                   EXPECT_EQ(record.seconds, 0.25);
                   return record.head.page != 5;
                 },
             .take =
                 [&](const RecordHead& record, std::span<const std::byte> payload) {
                   EXPECT_TRUE(std::ranges::equal(payload, written_bytes(record.head)));
                   taken.push_back(record.head.page);
                   return record.head.page < 9;
                 }});
  ASSERT_TRUE(unread.ok()) << unread.status().message();
  EXPECT_EQ(unread->damaged, 0u);
  EXPECT_EQ(unread->foreign, 0u);
  EXPECT_EQ(taken, (std::vector<uint32_t>{0, 1, 2, 3, 4, 6, 7, 8, 9}));
}

// Its file is as long as its capacity, with zeros behind the last record.
TEST(ArchiveReaderTest, WhatADeadProcessHasLeftIsRead) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/archive";
  const auto directory = open_directory(path, uint64_t{1} << 24);
  ASSERT_EQ(offer(*directory, page_head(1, 0, 100)), OfferResult::kTaken);
  int count = 0;
  const auto take = [&](const RecordHead&, std::span<const std::byte>) { return ++count > 0; };
  ASSERT_TRUE(read_archive(path, {.wants = [](const auto&) { return true; }, .take = take}).ok());
  EXPECT_EQ(count, 1);
}

TEST(ArchiveReaderTest, NothingIsMadeWhereThereIsNone) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/none";
  const RecordVisitor nobody = {.wants = [](const auto&) { return false; },
                                .take = [](const auto&, auto) { return false; }};
  EXPECT_EQ(read_archive(path, nobody).status().code(), StatusCode::kInvalidInput);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace wideep::store
