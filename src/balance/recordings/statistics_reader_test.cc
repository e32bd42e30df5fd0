// SPDX-License-Identifier: Apache-2.0
//
// Directories as TRT records them are broken in one file or tensor at a time, and the message must
// name it. What meta_info.json claims is held against the files, so that a claim becomes neither
// memory nor an overflow. A list of steps must give what its sum gives. A failure is a plan from a
// part of the load, without a word.
#include "recordings/statistics_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "formats/files.h"
#include "recordings/statistics_writer.h"
#include "tensor_files/safetensors.h"

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

using Rows = std::map<std::string, std::vector<int64_t>>;

class StatisticsDirectory : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/statistics_" + info->name();
    fs::remove_all(path_);
    fs::create_directories(path_);
    write_meta("{\"num_experts\": 2, \"num_experts_per_token\": 1}");
  }
  void TearDown() override { fs::remove_all(path_); }

  void write_meta(const std::string& text) {
    ASSERT_TRUE(formats::write_file(path_ + "/meta_info.json", text).ok());
  }

  void write_rank(const std::string& name, const Rows& rows) {
    std::vector<tensor_files::TensorToWrite> tensors;
    for (const auto& [key, row] : rows) {
      tensors.push_back(
          {key, Dtype::kI64, {static_cast<int64_t>(row.size())}, std::as_bytes(std::span(row))});
    }
    ASSERT_TRUE(tensor_files::write_safetensors(path_ + "/" + name, tensors).ok());
  }

  std::string complaint() const {
    const Result<ExpertStatistics> statistics = read_statistics(path_);
    if (statistics.ok()) return "accepted";
    EXPECT_EQ(statistics.status().code(), StatusCode::kInvalidInput);
    return statistics.status().message();
  }

  std::string path_;
};

TEST_F(StatisticsDirectory, ReadsAllRanks) {
  write_rank("rank0.safetensors",
             {{"9_3", {1, 2}}, {"9_4", {3, 4}}, {"10_3", {5, 6}}, {"10_4", {7, 8}}});
  write_rank("rank1.safetensors",
             {{"9_3", {10, 20}}, {"9_4", {30, 40}}, {"10_3", {50, 60}}, {"10_4", {70, 80}}});
  write_rank("rank0_raw.safetensors", {{"not a key", {1}}});
  const Result<ExpertStatistics> statistics = read_statistics(path_);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_experts, 2);
  EXPECT_EQ(statistics->top_k, 1);
  EXPECT_EQ(statistics->ep_size, 2);
  EXPECT_EQ(statistics->iter_start, 9);
  EXPECT_EQ(statistics->iter_stop, 11);
  EXPECT_THAT(statistics->layers, ElementsAre(3, 4));
  EXPECT_THAT(statistics->counts,
              ElementsAre(1, 2, 10, 20, 3, 4, 30, 40, 5, 6, 50, 60, 7, 8, 70, 80));
}

TEST_F(StatisticsDirectory, NamesMissingFiles) {
  EXPECT_THAT(complaint(), HasSubstr("found no such file"));
  write_rank("rank1.safetensors", {{"0_0", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("rank0.safetensors is missing"));
  write_rank("rank0.safetensors", {{"0_0", {1, 2}}});
  fs::remove(path_ + "/meta_info.json");
  EXPECT_THAT(complaint(), HasSubstr("meta_info.json"));
  EXPECT_THAT(read_statistics(path_ + "/nowhere").status().message(), HasSubstr("nowhere"));
}

TEST_F(StatisticsDirectory, RefusesHolesInIterationsAndLayers) {
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}, {"2_1", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("tensor 1_1 is missing"));
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}, {"0_2", {1, 2}}, {"1_2", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("tensor 1_1 is missing"));
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}, {"1_1", {1, 2}}, {"1_2", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("tensor 0_2 is missing"));
}

TEST_F(StatisticsDirectory, RefusesRanksThatDiffer) {
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}, {"1_1", {1, 2}}});
  write_rank("rank1.safetensors", {{"0_1", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("rank1.safetensors: tensor 1_1 is missing"));
  write_rank("rank1.safetensors", {{"0_1", {1, 2}}, {"1_1", {1, 2}}, {"2_1", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("rank1.safetensors: tensor 2_1 is unexpected"));
  write_rank("rank1.safetensors", {{"0_0", {1, 2}}, {"0_1", {1, 2}}, {"1_1", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("rank1.safetensors: tensor 0_0 is unexpected"));
}

TEST_F(StatisticsDirectory, RefusesBadTensors) {
  write_rank("rank0.safetensors", {{"0_1", {1, 2, 3}}});
  EXPECT_THAT(complaint(), HasSubstr("tensor 0_1: expected I64 [2]"));
  EXPECT_THAT(complaint(), HasSubstr("found I64 [3]"));
  write_rank("rank0.safetensors", {{"0_1", {1, -2}}});
  EXPECT_THAT(complaint(), HasSubstr("expert 1: expected a count ≥ 0, found -2"));
  for (const char* key : {"0", "_1", "0_", "0_1_2", "a_1", "-1_1", "0_99999999999", " 0_1"}) {
    write_rank("rank0.safetensors", {{key, {1, 2}}});
    EXPECT_THAT(complaint(), HasSubstr("expected a name")) << key;
  }
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}, {"0_01", {1, 2}}});
  EXPECT_THAT(complaint(), HasSubstr("occurs twice"));
  write_rank("rank0.safetensors", {});
  EXPECT_THAT(complaint(), HasSubstr("holds no statistics"));
}

TEST_F(StatisticsDirectory, RefusesAnotherDtype) {
  const std::vector<float> row = {1, 2};
  ASSERT_TRUE(
      tensor_files::write_safetensors(path_ + "/rank0.safetensors",
                                      {{"0_1", Dtype::kF32, {2}, std::as_bytes(std::span(row))}})
          .ok());
  EXPECT_THAT(complaint(), HasSubstr("expected I64 [2]"));
}

// What meta_info.json claims is no size of memory, and no product that overflows.
TEST_F(StatisticsDirectory, RefusesClaimsThatTheFilesDoNotKeep) {
  for (int rank = 0; rank < 4; ++rank) {
    write_rank("rank" + std::to_string(rank) + ".safetensors", {{"0_1", {1, 2}}});
  }
  const auto with = [&](const std::string& more) {
    write_meta("{\"num_experts\": 2, \"num_experts_per_token\": 1" + more + "}");
    return complaint();
  };
  EXPECT_EQ(with(""), "accepted");
  EXPECT_THAT(with(", \"ep_size\": 8"), HasSubstr("recorded by 8 ranks"));
  // 2^62 + 1 ranks in 4 stages would be 4 again.
  EXPECT_THAT(with(", \"num_stages\": 4, \"ep_size\": 4611686018427387905"),
              HasSubstr("meta_info.json"));
  EXPECT_THAT(with(", \"num_stages\": 3"), HasSubstr("3 pipeline stages"));
  write_meta("{\"num_experts\": 65536, \"num_experts_per_token\": 1}");
  EXPECT_THAT(complaint(), HasSubstr("expected I64 [65536]"));
}

// The first file has room for a thousand iterations, the others for one: found before their memory
// is taken.
TEST_F(StatisticsDirectory, FindsFilesThatAreTooSmall) {
  Rows many;
  for (int i = 0; i < 1000; ++i) many[std::to_string(i) + "_0"] = std::vector<int64_t>(64, 1);
  write_rank("rank0.safetensors", many);
  write_rank("rank1.safetensors", {{"0_0", std::vector<int64_t>(64, 1)}});
  write_meta("{\"num_experts\": 64, \"num_experts_per_token\": 1}");
  EXPECT_THAT(complaint(), HasSubstr("rank1.safetensors: tensor 1_0 is missing"));
}

TEST_F(StatisticsDirectory, RefusesBadMetaInfo) {
  write_rank("rank0.safetensors", {{"0_1", {1, 2}}});
  for (const char* text :
       {"{\"num_experts\": 2}", "{\"num_experts\": 0, \"num_experts_per_token\": 1}", "[1]",
        "nonsense"}) {
    write_meta(text);
    EXPECT_THAT(complaint(), HasSubstr("meta_info.json")) << text;
  }
}

// [steps][layers][experts], as SGLang's recorder dumps them: one iteration that is their sum, and
// what follows from it is that of the same counts without steps.
TEST(LogicalCount, StepsAreAddedUp) {
  const Result<ExpertStatistics> statistics = parse_logical_count(
      R"({"logical_count": [[[0, 0], [1, 2], [0, 3]], [[0, 0], [10, 20], [5, 30]]]})", "load.json");
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_iterations(), 1);
  EXPECT_EQ(statistics->num_experts, 2);
  EXPECT_THAT(statistics->layers, ElementsAre(1, 2));
  EXPECT_THAT(statistics->counts, ElementsAre(11, 22, 5, 33));
  EXPECT_EQ(*statistics,
            *parse_logical_count(R"({"logical_count": [[0, 0], [11, 22], [5, 33]]})", "sum.json"));
}

// Of any number of steps no more is claimed than is there.
TEST(LogicalCount, AnyNumberOfStepsIsOneIteration) {
  for (int steps = 1; steps <= 40; steps += 13) {
    std::string text;
    for (int step = 0; step < steps; ++step) text += step == 0 ? "[[1, 2]]" : ", [[1, 2]]";
    const auto statistics = parse_logical_count("{\"logical_count\": [" + text + "]}", "load.json");
    ASSERT_TRUE(statistics.ok()) << statistics.status().message();
    EXPECT_TRUE(check_statistics(*statistics).ok()) << steps;
    EXPECT_THAT(statistics->layer_load(0), ElementsAre(steps, 2 * steps));
  }
}

TEST(LogicalCount, ReadsAndLeavesOutDenseLayers) {
  const Result<ExpertStatistics> statistics = parse_logical_count(
      R"({"logical_count": [[0, 0.0], [1, 2.0], [0, 3e2]], "comment": 1})", "load.json");
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->num_experts, 2);
  EXPECT_EQ(statistics->num_iterations(), 1);
  EXPECT_EQ(statistics->ep_size, 1);
  EXPECT_EQ(statistics->top_k, 0);
  EXPECT_THAT(statistics->layers, ElementsAre(1, 2));
  EXPECT_THAT(statistics->counts, ElementsAre(1, 2, 0, 300));
}

TEST(LogicalCount, RefusesInvalidCounts) {
  const auto complaint = [](const std::string& rows) {
    const auto statistics = parse_logical_count("{\"logical_count\": " + rows + "}", "load.json");
    return statistics.ok() ? "accepted" : statistics.status().message();
  };
  EXPECT_THAT(complaint("[[1, 0.5]]"),
              HasSubstr("load.json: logical_count[0][1]: expected a count"));
  EXPECT_THAT(complaint("[[1, -1]]"), HasSubstr("found -1"));
  EXPECT_THAT(complaint("[[1, \"2\"]]"), HasSubstr("logical_count[0][1]"));
  EXPECT_THAT(complaint("[[1, 1e300]]"), HasSubstr("logical_count[0][1]"));
  EXPECT_THAT(complaint("[[9007199254740992, 0], [0, 1]]"),
              HasSubstr("load.json: logical_count: the counts exceed 2^53"));
  EXPECT_EQ(complaint("[[9007199254740991, 0], [0, 1]]"), "accepted");
  EXPECT_THAT(complaint("[[1, 2], [3]]"), HasSubstr("logical_count[1]: expected 2 experts"));
  EXPECT_THAT(complaint("[[[1, 2]], [[1]]]"),
              HasSubstr("logical_count[1]: expected 1 layers of 2 experts as in step 0, found 1 of "
                        "1"));
  EXPECT_THAT(complaint("[[[1, 2]], 3]"), HasSubstr("logical_count[1]: expected a list of layers"));
  EXPECT_THAT(complaint("[[[1, [2]]]]"), HasSubstr("logical_count[0][0][1]: expected a count"));
  EXPECT_THAT(complaint("[[[9007199254740992]], [[1]]]"), HasSubstr("exceed 2^53"));
  EXPECT_THAT(complaint("[1]"), HasSubstr("expected the list of one layer's counts"));
  EXPECT_THAT(complaint("[[]]"), HasSubstr("logical_count[0]"));
  EXPECT_THAT(complaint("[[0, 0]]"), HasSubstr("every count is 0"));
  EXPECT_THAT(complaint("[]"), HasSubstr("every count is 0"));
  EXPECT_THAT(complaint("3"), HasSubstr("expected key logical_count"));
  EXPECT_THAT(parse_logical_count("{}", "load.json").status().message(),
              HasSubstr("expected key logical_count"));
}

// Of counts of slots: what meta_info.json says of them must fit together.
TEST_F(StatisticsDirectory, SlotsMustFitTheirMetaInfo) {
  write_rank("rank0.safetensors", {{"0_0", {1, 2, 3, 4}}});
  const auto refusal = [&](const std::string& keys) {
    write_meta("{\"num_experts\": 4, \"num_experts_per_token\": 1, " + keys + "}");
    const auto statistics = read_statistics_directory(path_);
    return statistics.ok() ? "accepted" : statistics.status().message();
  };
  const std::string slots = "\"counts\": \"slot\", \"num_logical_experts\": 3, ";
  EXPECT_EQ(refusal(slots + "\"slot_ranks\": 2, \"num_slots\": 4"), "accepted");
  EXPECT_THAT(refusal("\"counts\": \"rank\""), HasSubstr("expected \"expert\" or \"slot\""));
  EXPECT_THAT(refusal("\"counts\": \"slot\", \"slot_ranks\": 2"), HasSubstr("num_logical_experts"));
  EXPECT_THAT(refusal(slots + "\"slot_ranks\": 3"), HasSubstr("expected a divisor of the 4 slots"));
  EXPECT_THAT(refusal(slots + "\"slot_ranks\": 2, \"num_slots\": 5"),
              HasSubstr("num_slots: expected 4"));
  EXPECT_THAT(refusal(slots + "\"slot_ranks\": 2, \"borrowed_slots\": 2"),
              HasSubstr("borrowed_slots"));
  EXPECT_THAT(refusal("\"counts\": 7"), HasSubstr("counts"));
}

}  // namespace
}  // namespace wideep::recordings
