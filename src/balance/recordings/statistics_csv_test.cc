// SPDX-License-Identifier: Apache-2.0
//
// Tables as people and spreadsheets write them, with the counts that must come out, by iteration
// and layer. Frequencies, gaps and doubled lines are refused with line and column, because a plan
// from them would look like any other. Where recorded counts are there, every layer of them must
// have all tokens of its window.
#include "recordings/statistics_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "recordings/statistics_reader.h"

namespace wideep::recordings {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ExpertStatistics parsed(const std::string& text) {
  const Result<ExpertStatistics> statistics = parse_statistics_csv(text, "load.csv");
  EXPECT_TRUE(statistics.ok()) << statistics.status().message();
  return statistics.ok() ? *statistics : ExpertStatistics();
}

std::string complaint(const std::string& text) {
  const Result<ExpertStatistics> statistics = parse_statistics_csv(text, "load.csv");
  if (statistics.ok()) return "accepted";
  EXPECT_EQ(statistics.status().code(), StatusCode::kInvalidInput);
  return statistics.status().message();
}

TEST(StatisticsCsv, LinesWithTheSameLabelsAreOneIteration) {
  const ExpertStatistics statistics = parsed(
      "domain,layer,e0,e1,e2\n"
      "law,2,7,8,9\n"
      "\"news, sport\",1,10,20,30\n"
      "law,1,1,2,3\n"
      "\"news, sport\",2,70,80,90\n");
  EXPECT_EQ(statistics.num_experts, 3);
  EXPECT_EQ(statistics.ep_size, 1);
  EXPECT_EQ(statistics.top_k, 0);
  EXPECT_EQ(statistics.iter_start, 0);
  EXPECT_EQ(statistics.iter_stop, 2);
  EXPECT_THAT(statistics.layers, ElementsAre(1, 2));
  EXPECT_THAT(statistics.counts, ElementsAre(1, 2, 3, 7, 8, 9, 10, 20, 30, 70, 80, 90));
}

TEST(StatisticsCsv, AllLabelColumnsCount) {
  const ExpertStatistics statistics = parsed(
      "split,layer,domain,e0\n"
      "train,0,law,1\n"
      "test,0,law,2\n"
      "train,0,news,3\n");
  EXPECT_EQ(statistics.num_iterations(), 3);
  EXPECT_THAT(statistics.counts, ElementsAre(1, 2, 3));
}

TEST(StatisticsCsv, IterationColumnGivesTheNumbers) {
  const ExpertStatistics statistics = parsed(
      "layer,comment,iteration,e0,e1\n"
      "3,cold,11,3,4\n"
      "3,warm,12,5,6\n"
      "3,cold,10,1,2\n");
  EXPECT_EQ(statistics.iter_start, 10);
  EXPECT_EQ(statistics.iter_stop, 13);
  EXPECT_THAT(statistics.counts, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(StatisticsCsv, NoLabelsIsOneIteration) {
  const ExpertStatistics statistics = parsed("layer,e0,e1\n4,1,2\n5,3,4");
  EXPECT_EQ(statistics.num_iterations(), 1);
  EXPECT_THAT(statistics.layers, ElementsAre(4, 5));
  EXPECT_THAT(statistics.counts, ElementsAre(1, 2, 3, 4));
}

TEST(StatisticsCsv, LeavesOutLayersWithoutLoad) {
  const ExpertStatistics statistics = parsed(
      "iteration,layer,e0,e1\n"
      "0,0,0,0\n0,1,0,0\n0,2,1,1\n"
      "1,0,0,0\n1,1,5,0\n1,2,1,1\n");
  EXPECT_THAT(statistics.layers, ElementsAre(1, 2));
  EXPECT_THAT(statistics.counts, ElementsAre(0, 0, 1, 1, 5, 0, 1, 1));
}

TEST(StatisticsCsv, ReadsWhatSpreadsheetsWrite) {
  const ExpertStatistics statistics = parsed(
      "\xEF\xBB\xBF\"layer\", e0 ,e1,e2\r\n"
      "\r\n"
      "1, 12 ,\"3\",1024.0\r\n"
      "2,3e2,0.0,9007199254739653\r\n");
  EXPECT_THAT(statistics.counts, ElementsAre(12, 3, 1024, 300, 0, 9007199254739653));
}

TEST(StatisticsCsv, RefusesHeadersThatDoNotFit) {
  EXPECT_EQ(complaint(""), "load.csv: line 1: the file is empty, expected a line layer,e0,e1,...");
  EXPECT_THAT(complaint("\n\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(complaint("domain,e0,e1\n"), AllOf(HasSubstr("line 1"), HasSubstr("no layer")));
  EXPECT_THAT(complaint("layer,domain\n"), HasSubstr("found no e0"));
  EXPECT_THAT(complaint("layer,e1,e2\n"),
              HasSubstr("column 2: expected a column's name before e0"));
  EXPECT_THAT(complaint("layer,e0,e2\n"), HasSubstr("column 3: expected e1"));
  EXPECT_THAT(complaint("layer,e0,e0\n"), HasSubstr("column 3: expected e1"));
  EXPECT_THAT(complaint("layer,e0,e1,sum\n"),
              HasSubstr("column 4: expected e2 or the end of the line, found \"sum\""));
  EXPECT_THAT(complaint("e0,e1,layer\n"), HasSubstr("found no layer"));
  EXPECT_THAT(complaint("layer,layer,e0\n"), HasSubstr("column 2: \"layer\" occurs twice"));
  EXPECT_THAT(complaint("a,b,a,layer,e0\n"), HasSubstr("column 3: \"a\" occurs twice"));
  EXPECT_THAT(complaint(",layer,e0\n"), HasSubstr("column 1: expected a column's name"));
  EXPECT_THAT(complaint("\"layer,e0\n"), HasSubstr("expected each \" closed"));
}

TEST(StatisticsCsv, RefusesInvalidCounts) {
  const auto with = [](const std::string& count) {
    return complaint("domain,layer,e0,e1\nlaw,0,1,2\nlaw,1,3," + count + "\n");
  };
  EXPECT_EQ(with("-1"),
            "load.csv: line 3: column e1: expected a count of tokens (an integer from 0 to "
            "9007199254740992), found \"-1\"");
  for (const char* bad : {"nan", "NaN", "inf", "", "x", "1 2", "0x10", "2.5", "1e300", "1e999",
                          "9007199254740993e1", "--1", "1,000", "\"1,000\"", "+"}) {
    EXPECT_THAT(with(bad), HasSubstr("line 3: ")) << bad;
  }
  EXPECT_THAT(with("0.0873"), HasSubstr("multiply frequencies by their number of tokens"));
}

TEST(StatisticsCsv, RefusesRaggedLines) {
  EXPECT_EQ(complaint("layer,e0,e1\n1,2\n"),
            "load.csv: line 2: expected 3 fields as in the header, found 2");
  EXPECT_EQ(complaint("layer,e0,e1\n\n1,2,3,4\n"),
            "load.csv: line 3: expected 3 fields as in the header, found 4");
}

TEST(StatisticsCsv, RefusesBadLayersAndIterations) {
  EXPECT_THAT(complaint("layer,e0\n-1,2\n"), HasSubstr("line 2: column layer: expected a layer"));
  EXPECT_THAT(complaint("layer,e0\nx,2\n"), HasSubstr("column layer"));
  EXPECT_THAT(complaint("layer,e0\n2147483647,2\n"), HasSubstr("column layer"));
  EXPECT_THAT(complaint("layer,iteration,e0\n1,0.5,2\n"), HasSubstr("column iteration"));
}

TEST(StatisticsCsv, RefusesDuplicates) {
  EXPECT_THAT(complaint("domain,layer,e0\nlaw,1,1\nnews,1,1\nlaw,1,3\n"),
              HasSubstr("line 4: layer 1 with domain \"law\" is on line 2 already"));
  EXPECT_THAT(complaint("layer,e0\n1,1\n1,1\n"), HasSubstr("layer 1 with no labels is on line 2"));
  EXPECT_THAT(complaint("iteration,layer,e0\n5,1,1\n5,1,1\n"),
              HasSubstr("layer 1 with iteration 5 is on line 2 already"));
}

TEST(StatisticsCsv, RefusesHolesInIterationsAndLayers) {
  EXPECT_THAT(complaint("domain,layer,e0\nlaw,1,1\nlaw,2,1\nnews,2,3\n"),
              HasSubstr("load.csv: iteration 1 (domain \"news\") has no line for layer 1"));
  EXPECT_THAT(complaint("domain,layer,e0\nlaw,1,1\nlaw,2,1\nnews,1,3\n"),
              HasSubstr("iteration 1 (domain \"news\") has no line for layer 2"));
  EXPECT_THAT(complaint("iteration,layer,e0\n0,1,1\n2000000000,1,1\n"),
              HasSubstr("iteration 1 (absent) has no line for layer 1"));
  EXPECT_THAT(complaint("domain,iteration,layer,e0\nlaw,4,1,1\nnews,4,2,1\n"),
              HasSubstr("line 3: iteration 4: expected the labels of its first line "
                        "(domain \"law\"), found domain \"news\""));
}

TEST(StatisticsCsv, RefusesNoTokensAndTooMany) {
  EXPECT_THAT(complaint("layer,e0\n"), HasSubstr("no line below the header"));
  EXPECT_THAT(complaint("layer,e0\n1,0\n2,0\n"), HasSubstr("every count is 0"));
  EXPECT_THAT(complaint("layer,e0\n1,9007199254740991\n2,2\n"),
              HasSubstr("line 3: column e0: the counts up to here exceed 2^53"));
}

TEST(StatisticsCsv, MessagesAreOneLine) {
  const std::string message = complaint("layer,e0\n1,\x01\xff\"a\n");
  EXPECT_THAT(message, HasSubstr("\\x01\\xff"));
}

TEST(StatisticsCsv, ReadStatisticsChoosesTheFormByTheFileName) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("load.csv");
  ASSERT_TRUE(formats::write_file(path, "layer,e0,e1\n1,2,3\n").ok());
  const Result<ExpertStatistics> statistics = read_statistics(path);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_THAT(statistics->counts, ElementsAre(2, 3));
  EXPECT_THAT(read_statistics(directory.file("no.csv")).status().message(), HasSubstr("no.csv"));
}

// Every layer of a window of tokens sends each token to six experts.
TEST(StatisticsCsv, ReadsRecordedCounts) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded counts to read";
  const std::string path = std::string(data) + "/routing_trace_deepseek_v2lite/counts.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist";
  const Result<ExpertStatistics> statistics = read_statistics(path);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_experts, 64);
  EXPECT_EQ(statistics->num_layers(), 26);
  EXPECT_EQ(statistics->layers.front(), 1);
  ASSERT_EQ(statistics->num_iterations(), 3);
  const std::array<int64_t, 3> tokens = {8251, 8327, 8479};  // translation, law, summary
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (int layer = 0; layer < 26; ++layer) {
      int64_t sum = 0;
      for (int64_t count : statistics->row(iteration, layer, 0)) sum += count;
      ASSERT_EQ(sum, tokens[static_cast<size_t>(iteration)] * 6) << iteration << " " << layer;
    }
  }
}

}  // namespace
}  // namespace wideep::recordings
