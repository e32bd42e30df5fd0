// SPDX-License-Identifier: Apache-2.0
#include "store/directory_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace wideep::store {
namespace {

Name name_of(unsigned char number) {
  Name name;
  name.bytes[0] = number;
  return name;
}

DirectoryIndex::Key key_of(unsigned char number, Kind kind = Kind::kPage) {
  return {.name = name_of(number), .kind = kind};
}

// before: 0 for the first page.
RecordHead record_of(unsigned char number, unsigned char before, double seconds,
                     uint64_t segment = 1) {
  return {.head = {.name = name_of(number), .before = name_of(before), .part = Part::whole(100)},
          .seconds = seconds,
          .segment = segment,
          .offset = uint64_t{number} * 2 * kBlockBytes,
          .payload_bytes = 100};
}

bool any(const DirectoryIndex::Entry&) { return true; }

// In which order all of it would go.
std::vector<int> order_of(DirectoryIndex& index) {
  std::vector<int> order;
  while (const auto least = index.least(any)) {
    order.push_back(least->name.bytes[0]);
    const DirectoryIndex::Entry entry = *index.find(*least);
    index.advance_clock(entry.worth);
    for (const auto& record : entry.records) index.remove(*least, record.segment, record.offset);
  }
  return order;
}

TEST(DirectoryIndex, WhatContinuesGoesBeforeWhatItContinues) {
  DirectoryIndex index;
  for (const unsigned char number : {1, 2, 3}) index.add(record_of(number, number - 1, 1));
  index.add(record_of(4, 1, 0.5));  // cheaper than all: it goes first
  EXPECT_EQ(order_of(index), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(index.num_records(), 0u);
}

TEST(DirectoryIndex, WhatIsUsedOrDearStays) {
  DirectoryIndex index;
  for (const unsigned char number : {1, 2, 3, 4}) index.add(record_of(number, 0, 1));
  index.add(record_of(5, 0, 2.5));
  index.use(key_of(1));
  index.use(key_of(2));
  index.use(key_of(2));
  EXPECT_EQ(order_of(index), (std::vector<int>{3, 4, 1, 5, 2}));
}

TEST(DirectoryIndex, WithoutSecondsTheLongestUnusedGoes) {
  DirectoryIndex index;
  for (const unsigned char number : {1, 2, 3}) index.add(record_of(number, 0, 0));
  index.use(key_of(1));
  EXPECT_EQ(order_of(index), (std::vector<int>{2, 3, 1}));
}

// What was used often, long ago, gives way in the end to what comes once.
TEST(DirectoryIndex, WhatIsNotUsedAnyMoreAges) {
  DirectoryIndex index;
  index.add(record_of(1, 0, 1));
  for (int i = 0; i < 5; ++i) index.use(key_of(1));
  int turns = 0;
  for (; index.find(key_of(1)) != nullptr && turns < 20; ++turns) {
    index.add(record_of(static_cast<unsigned char>(2 + turns), 0, 1));
    const auto least = *index.least(any);
    index.advance_clock(index.find(least)->worth);
    index.remove(least, 1, index.find(least)->records[0].offset);
  }
  EXPECT_GT(turns, 4);
  EXPECT_LT(turns, 8);
}

TEST(DirectoryIndex, AStateGoesBeforeItsPage) {
  DirectoryIndex index;
  index.add(record_of(1, 0, 0.1));
  RecordHead state = record_of(1, 0, 5);
  state.head.kind = Kind::kState;
  state.offset = 77 * kBlockBytes;
  index.add(state);
  EXPECT_EQ(index.least(any)->kind, Kind::kState);
  index.remove(key_of(1, Kind::kState), 1, state.offset);
  EXPECT_EQ(index.least(any)->kind, Kind::kPage);
}

// Nothing that may go is at an end: the end of what may go does.
TEST(DirectoryIndex, TheDeepestGoesWhereNoEndMay) {
  DirectoryIndex index;
  for (const unsigned char number : {1, 2, 3}) {
    RecordHead record = record_of(number, number - 1, 1, /*segment=*/number);
    record.head.page = number - 1u;
    index.add(record);
  }
  const auto may_go = [](const DirectoryIndex::Entry& entry) {
    return entry.records[0].segment < 3;
  };
  EXPECT_FALSE(index.least(may_go).has_value());
  EXPECT_EQ(index.deepest(may_go)->name, name_of(2));
}

// Random changes against a plain list.
TEST(DirectoryIndex, AgreesWithAPlainList) {
  std::mt19937 random(9);
  DirectoryIndex index;
  std::vector<RecordHead> list;
  const auto has_child = [&](const RecordHead& record) {
    return std::any_of(list.begin(), list.end(), [&](const RecordHead& other) {
      return other.head.before == record.head.name;
    });
  };
  for (int step = 0; step < 5000; ++step) {
    const auto number = static_cast<unsigned char>(1 + random() % 30);
    const uint64_t segment = random() % 5;
    switch (random() % 8) {
      case 0:
        index.remove_segment(segment);
        std::erase_if(list, [&](const RecordHead& r) { return r.segment == segment; });
        break;
      case 1:
      case 2: {
        if (list.empty()) break;
        const size_t at = random() % list.size();
        const RecordHead gone = list[at];
        index.remove(key_of(gone.head.name.bytes[0]), gone.segment, gone.offset);
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      case 3:
        index.use(key_of(number));
        break;
      default: {
        RecordHead record =
            record_of(number, static_cast<unsigned char>(number / 2), number, segment);
        record.offset = static_cast<uint64_t>(step) * kBlockBytes;
        index.add(record);
        list.push_back(record);
      }
    }
    ASSERT_EQ(index.num_records(), list.size());
    std::set<int> leaves, found;
    for (const RecordHead& record : list) {
      ASSERT_NE(index.find(key_of(record.head.name.bytes[0])), nullptr);
      if (!has_child(record)) leaves.insert(record.head.name.bytes[0]);
    }
    // least() names each of the leaves, and nothing else, if those before it may not go.
    (void)index.least([&](const DirectoryIndex::Entry& entry) {
      for (const RecordHead& record : list) {
        if (record.segment == entry.records[0].segment &&
            record.offset == entry.records[0].offset) {
          found.insert(record.head.name.bytes[0]);
        }
      }
      return false;
    });
    ASSERT_EQ(found, leaves);
    const auto in_segment = std::count_if(
        list.begin(), list.end(), [&](const RecordHead& r) { return r.segment == segment; });
    ASSERT_EQ(index.num_records(segment), static_cast<uint64_t>(in_segment));
  }
}

}  // namespace
}  // namespace wideep::store
