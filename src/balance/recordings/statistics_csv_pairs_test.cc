// SPDX-License-Identifier: Apache-2.0
//
// The table leaves out what others say: the number of experts, and experts without tokens. Held are
// both ways to know the number, and both sides of the limit of memory: few lines cannot claim much,
// many lines may. A failure means that experts without tokens are lost, so that a plan has no slot
// for them, or that a short file takes all memory.
#include "recordings/statistics_csv_pairs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recordings/statistics_csv.h"

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string pairs_complaint(const std::string& text, int num_experts = 0) {
  const auto statistics = parse_statistics_csv(text, "load.csv", num_experts);
  return statistics.ok() ? "accepted" : statistics.status().message();
}

// As SGLang wrote them: layers and experts in the order of their first token, those without any
// left out.
TEST(CsvPairs, ReadsTheTableOfOlderReleasesOfSglang) {
  const auto statistics = parse_statistics_csv(
      "layer_id,expert_id,count\n4,3,7\n3,0,24990\n3,2,39249\n4,0,1\n5,1,0\n", "load.csv");
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_experts, 4);
  EXPECT_TRUE(statistics->guessed_experts);
  EXPECT_EQ(statistics->ep_size, 1);
  EXPECT_EQ(statistics->num_iterations(), 1);
  EXPECT_THAT(statistics->layers, ElementsAre(3, 4));
  EXPECT_THAT(statistics->counts, ElementsAre(24990, 0, 39249, 0, 1, 0, 0, 7));
  EXPECT_TRUE(check_statistics(*statistics).ok());
}

TEST(CsvPairs, TakesTheNumberOfExperts) {
  const auto statistics =
      parse_statistics_csv("count,layer_id,expert_id\r\n5,1,2\r\n", "load.csv", 6);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_experts, 6);
  EXPECT_FALSE(statistics->guessed_experts);
  EXPECT_THAT(statistics->counts, ElementsAre(0, 0, 5, 0, 0, 0));
  EXPECT_EQ(
      pairs_complaint("layer_id,expert_id,count\n0,1,2\n0,2,2\n", 2),
      "load.csv: line 3: column expert_id: expected an expert (an integer from 0 to 1), found "
      "\"2\"");
}

TEST(CsvPairs, RefusesWhatIsNoSuchTable) {
  EXPECT_THAT(
      pairs_complaint("layer_id,expert_id,count,ratio\n0,0,1,1\n"),
      HasSubstr("line 1: expected the columns layer_id, expert_id, count, found 4 columns"));
  EXPECT_THAT(pairs_complaint("layer_id,e0\n0,1\n"), HasSubstr("found 2 columns"));
  EXPECT_THAT(pairs_complaint("layer_id,layer_id,expert_id\n0,1,2\n"), HasSubstr("columns"));
  const std::string head = "layer_id,expert_id,count\n";
  EXPECT_EQ(pairs_complaint(head),
            "load.csv: no line below the header, expected counts of experts");
  EXPECT_THAT(pairs_complaint(head + "0,0,0\n"), HasSubstr("load.csv: every count is 0"));
  EXPECT_THAT(pairs_complaint(head + "0,0\n"), HasSubstr("line 2: expected 3 fields"));
  EXPECT_THAT(pairs_complaint(head + "0,0,1\n0,0,1\n"),
              HasSubstr("line 3: expert 0 of layer 0 has a line already"));
  EXPECT_THAT(pairs_complaint(head + "0,0,0.5\n"), HasSubstr("multiply frequencies"));
  EXPECT_THAT(pairs_complaint(head + "0,65536,1\n"), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(pairs_complaint(head + "-1,0,1\n"), HasSubstr("column layer_id"));
  EXPECT_THAT(pairs_complaint(head + "0,0,9007199254740992\n0,1,1\n"), HasSubstr("exceed 2^53"));
}

// A short file must not claim a large memory: 26 KB could mean 1 GiB.
TEST(CsvPairs, RefusesFarMoreCountsThanLines) {
  std::string text = "layer_id,expert_id,count\n";
  for (int layer = 0; layer < 2048; ++layer) text += fmt::format("{},65535,1\n", layer);
  EXPECT_EQ(pairs_complaint(text),
            "load.csv: expected at most 1048576 counts of layers × experts in 2048 lines, found "
            "2048 layers of 65536 experts");
  EXPECT_THAT(pairs_complaint(text, 65536), HasSubstr("2048 layers of 65536 experts"));
}

// Of a few tokens, in which most experts have had none.
TEST(CsvPairs, ReadsALargeModelWithFewLines) {
  std::string text = "layer_id,expert_id,count\n";
  for (int layer = 0; layer < 128; ++layer) text += fmt::format("{},8191,1\n", layer);
  const auto statistics = parse_statistics_csv(text, "load.csv");
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->counts.size(), size_t{128} * 8192);
}

// Many layers, as long as their lines say something.
TEST(CsvPairs, LinesJustifyMoreCounts) {
  std::string text = "layer_id,expert_id,count\n";
  for (int layer = 0; layer < 512; ++layer) {
    for (int expert = 0; expert < 2500; expert += 50) {
      text += fmt::format("{},{},1\n", layer, expert);
    }
  }
  EXPECT_EQ(pairs_complaint(text, 3200), "accepted");
  EXPECT_THAT(pairs_complaint(text, 3201), HasSubstr("at most 1638400 counts"));
}

TEST(CsvPairs, ATableWithAColumnForEachExpertSaysItsNumber) {
  EXPECT_THAT(pairs_complaint("layer,e0,e1\n0,1,2\n", 2),
              HasSubstr("this one has a column for each of its 2 experts: leave it out"));
}

}  // namespace
}  // namespace wideep::recordings
