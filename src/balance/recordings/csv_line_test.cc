// SPDX-License-Identifier: Apache-2.0
#include "recordings/csv_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::Optional;

TEST(CsvLine, SplitsAtCommas) {
  EXPECT_THAT(split_csv_line("a,b,c"), Optional(ElementsAre("a", "b", "c")));
  EXPECT_THAT(split_csv_line("a"), Optional(ElementsAre("a")));
  EXPECT_THAT(split_csv_line(""), Optional(ElementsAre("")));
  EXPECT_THAT(split_csv_line(",a,,"), Optional(ElementsAre("", "a", "", "")));
}

TEST(CsvLine, DropsBlanksAroundFields) {
  EXPECT_THAT(split_csv_line("  a b\t, c ,  "), Optional(ElementsAre("a b", "c", "")));
}

TEST(CsvLine, ReadsQuotedFields) {
  EXPECT_THAT(split_csv_line(R"("Fraud, Scams", "say ""yes""" ,"",3)"),
              Optional(ElementsAre("Fraud, Scams", "say \"yes\"", "", "3")));
  EXPECT_THAT(split_csv_line(R"(" a ")"), Optional(ElementsAre(" a ")));
  EXPECT_THAT(split_csv_line(R"(5" disk,1)"), Optional(ElementsAre("5\" disk", "1")));
}

TEST(CsvLine, RefusesBrokenQuotes) {
  EXPECT_EQ(split_csv_line(R"(a,"b)"), std::nullopt);
  EXPECT_EQ(split_csv_line(R"("a"b,c)"), std::nullopt);
  EXPECT_EQ(split_csv_line(R"(""")"), std::nullopt);
}

}  // namespace
}  // namespace wideep::recordings
