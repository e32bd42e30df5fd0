// SPDX-License-Identifier: Apache-2.0
#include "store/part_cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace wideep::store {
namespace {

std::set<uint64_t> bytes_of(const Part& part) {
  std::set<uint64_t> bytes;
  for (uint64_t i = 0; i < part.count; ++i) {
    for (uint64_t k = 0; k < part.length; ++k) bytes.insert(part.first + i * part.stride + k);
  }
  return bytes;
}

TEST(PartsThatCover, AreFoundWhereThereAreSome) {
  std::mt19937 random(3);
  int covered = 0, uncovered = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Part> parts(random() % 6);
    Part to;
    const auto draw = [&](Part& part) {
      part.length = 1 + random() % 8;
      part = {.first = random() % 20,
              .length = part.length,
              .stride = part.length + random() % 8,
              .count = 1 + random() % 4};
    };
    for (Part& each : parts) draw(each);
    draw(to);
    const std::vector<size_t> chosen = parts_that_cover(to, parts);
    std::set<uint64_t> all, of_chosen;
    for (const Part& each : parts) all.merge(bytes_of(each));
    for (const size_t each : chosen) of_chosen.merge(bytes_of(parts[each]));
    const std::set<uint64_t> wanted = bytes_of(to);
    const bool is_there = std::ranges::includes(all, wanted);
    EXPECT_EQ(!chosen.empty(), is_there);
    if (is_there) {
      EXPECT_TRUE(std::ranges::includes(of_chosen, wanted));
    }
    ++(is_there ? covered : uncovered);
  }
  EXPECT_GT(covered, 300);
  EXPECT_GT(uncovered, 300);
}

TEST(PartsThatCover, OneAloneIsEnoughIfItHasAll) {
  const Part half{.first = 0, .length = 50, .stride = 50, .count = 1};
  const Part rest{.first = 50, .length = 50, .stride = 50, .count = 1};
  const std::vector<Part> parts{half, rest, Part::whole(200), Part::whole(100), Part::whole(120)};
  EXPECT_EQ(parts_that_cover(Part::whole(100), parts), std::vector<size_t>{3});
  EXPECT_EQ(parts_that_cover({.first = 10, .length = 80, .stride = 80, .count = 1}, parts),
            std::vector<size_t>{3});
  EXPECT_EQ(parts_that_cover(Part::whole(0), parts), std::vector<size_t>{});
  EXPECT_EQ(parts_that_cover(half, {}), std::vector<size_t>{});
}

}  // namespace
}  // namespace wideep::store
