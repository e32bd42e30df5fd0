// SPDX-License-Identifier: Apache-2.0
#include "formats/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace wideep::formats {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<std::pair<int, std::string>> lines_of(const std::string& content) {
  NonBlankLines lines(content);
  std::vector<std::pair<int, std::string>> all;
  while (const auto line = lines.next()) all.emplace_back(line->number, std::string(line->text));
  return all;
}

TEST(NonBlankLines, HaveTheirNumbersInTheFile) {
  EXPECT_THAT(lines_of("a\n\n \t\r\n b \nc"),
              ElementsAre(Pair(1, "a"), Pair(4, " b "), Pair(5, "c")));
  EXPECT_THAT(lines_of("a\n"), ElementsAre(Pair(1, "a")));
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("\n\n"), IsEmpty());
}

}  // namespace
}  // namespace wideep::formats
