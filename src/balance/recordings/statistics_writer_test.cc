// SPDX-License-Identifier: Apache-2.0
//
// Writer against reader: ranks, and ranks of two pipeline stages, record counts that tell rank and
// iteration apart, and all must come back in order. A file that is not there, as of a rank that
// died, must be noticed. A directory with statistics is refused, since files of an earlier run with
// more ranks would be counted too. A failure is a recording that cannot be used after the run that
// made it.
#include "recordings/statistics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "formats/files.h"
#include "recordings/statistics_reader.h"

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

std::string fresh_directory(const std::string& name) {
  const std::string path = testing::TempDir() + "/statistics_writer_" + name;
  fs::remove_all(path);
  return path;
}

TEST(StatisticsWriter, WritesWhatTheReaderReads) {
  const std::string path = fresh_directory("round/trip");
  const auto made = prepare_statistics_directory(path);
  ASSERT_TRUE(made.ok());
  for (int rank = 0; rank < 2; ++rank) {
    StatisticsWriter writer(path, rank, {.num_experts = 3, .top_k = 2, .ep_size = 2});
    for (int iteration = 20; iteration < 22; ++iteration) {
      const std::vector<int64_t> row = {rank, iteration, 1};
      writer.add(iteration, 7, row);
    }
    writer.add(20, 7, std::vector<int64_t>{100, 0, 0});  // called again: summed
    ASSERT_TRUE(writer.write().ok());
  }
  const Result<ExpertStatistics> statistics = read_statistics(path);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->top_k, 2);
  EXPECT_EQ(statistics->ep_size, 2);
  EXPECT_EQ(statistics->iter_start, 20);
  EXPECT_THAT(statistics->layers, ElementsAre(7));
  EXPECT_THAT(statistics->counts, ElementsAre(100, 20, 1, 101, 20, 1, 0, 21, 1, 1, 21, 1));
  EXPECT_EQ(*formats::read_file(path + "/meta_info.json"),
            "{\"num_experts\": 3, \"num_experts_per_token\": 2, \"ep_size\": 2, \"counts\": "
            "\"expert\"}\n");
  fs::remove(path + "/rank1.safetensors");  // its rank died
  EXPECT_THAT(read_statistics(path).status().message(),
              HasSubstr("recorded by 2 ranks (meta_info.json: ep_size), expected as many files, "
                        "found 1"));
  fs::remove_all(path);
}

// Four slots on two ranks, the second of each borrowed, of a model with three experts.
TEST(StatisticsWriter, CountsOfSlotsNameThemselves) {
  const std::string path = fresh_directory("slots_of_run") + "/slots";
  const SlotLayout layout{.num_ranks = 2, .borrowed_per_rank = 1, .num_logical_experts = 3};
  StatisticsWriter writer(path, 0, {.num_experts = 4, .top_k = 2, .ep_size = 1, .slots = layout});
  writer.add(3, 1, std::vector<int64_t>{5, 0, 7, 1});
  ASSERT_TRUE(writer.write().ok());
  EXPECT_EQ(*formats::read_file(path + "/meta_info.json"),
            "{\"num_experts\": 4, \"num_experts_per_token\": 2, \"ep_size\": 1, \"counts\": "
            "\"slot\", \"num_slots\": 4, \"slot_ranks\": 2, \"borrowed_slots\": 1, "
            "\"num_logical_experts\": 3}\n");
  const auto statistics = read_statistics_directory(path);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->slots, layout);
  EXPECT_THAT(statistics->counts, ElementsAre(5, 0, 7, 1));
  // To a planner they would be experts that do not exist.
  const Status refused = read_statistics(path).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(refused.message(), HasSubstr("expected counts of experts, found counts of slots"));
  const std::string above = fs::path(path).lexically_normal().parent_path().string();
  EXPECT_THAT(refused.message(), HasSubstr("give " + above + ", which"));
  EXPECT_THAT(read_statistics(path + "/").status().message(), HasSubstr("give " + above + ","));
  // An earlier run's slots would be read as this one's.
  EXPECT_THAT(prepare_statistics_directory(above).status().message(),
              HasSubstr("expected no expert statistics yet"));
  fs::remove_all(above);
}

// Two stages of two ranks: layers 2 and 3, layer 7.
TEST(StatisticsWriter, StagesOfAPipelineRecordTheirLayers) {
  const std::string path = fresh_directory("stages");
  const auto made = prepare_statistics_directory(path);
  ASSERT_TRUE(made.ok());
  const std::vector<std::vector<int>> layers = {{2, 3}, {7}};
  const auto write = [&](int file, int shift) {
    StatisticsWriter writer(path, file,
                            {.num_experts = 2, .top_k = 1, .ep_size = 2, .num_stages = 2});
    for (const int layer : layers[static_cast<size_t>(file / 2)]) {
      writer.add(5 + shift, layer, std::vector<int64_t>{10 * layer, file % 2});
    }
    return writer.write();
  };
  for (int file = 0; file < 4; ++file) ASSERT_TRUE(write(file, 0).ok());
  const Result<ExpertStatistics> statistics = read_statistics(path);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->ep_size, 2);
  EXPECT_THAT(statistics->layers, ElementsAre(2, 3, 7));
  EXPECT_THAT(statistics->counts, ElementsAre(20, 0, 20, 1, 30, 0, 30, 1, 70, 0, 70, 1));
  ASSERT_TRUE(write(2, 1).ok());
  EXPECT_THAT(read_statistics(path).status().message(),
              HasSubstr("rank2.safetensors: holds iterations 6 to 6, expected 5 to 5"));
  fs::remove(path + "/rank3.safetensors");
  EXPECT_THAT(read_statistics(path).status().message(),
              HasSubstr("recorded by 2 ranks of 2 pipeline stages"));
  fs::remove_all(path);
}

TEST(StatisticsWriter, RefusesToMixWithAnEarlierRun) {
  const std::string path = fresh_directory("mix");
  const auto made = prepare_statistics_directory(path);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(prepare_statistics_directory(path).ok());  // still empty
  ASSERT_TRUE(formats::write_file(path + "/rank7.safetensors", "x").ok());
  const Status status = prepare_statistics_directory(path).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("found rank7.safetensors"));
  fs::remove_all(path);
}

TEST(StatisticsWriter, ReportsMissingCountsAndDirectories) {
  const StatisticsWriter empty("/dev/null/place", 0, {.num_experts = 1, .top_k = 1});
  EXPECT_THAT(empty.write().message(), HasSubstr("no iteration was recorded"));
  StatisticsWriter writer("/dev/null/place", 0, {.num_experts = 1, .top_k = 1});
  writer.add(0, 0, std::vector<int64_t>{1});
  const Status status = writer.write();
  EXPECT_EQ(status.code(), StatusCode::kFailed);
  EXPECT_THAT(status.message(), HasSubstr("/dev/null/place: cannot create: Not a directory"));
  EXPECT_FALSE(prepare_statistics_directory("/dev/null/statistics").ok());
}

}  // namespace
}  // namespace wideep::recordings
