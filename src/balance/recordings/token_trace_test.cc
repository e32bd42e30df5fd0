// SPDX-License-Identifier: Apache-2.0
//
// Five tokens by hand; 60,000 at random, several blocks of the reader, against a simple count; and
// recorded traces, where they are there, against the table of the same recording. The file has no
// header, so a wrong shape must be found by the ids that it makes. A failure is a load that no
// router has chosen.
#include "recordings/token_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "recordings/statistics_reader.h"

namespace wideep::recordings {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenTrace : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_.file(name);
    EXPECT_TRUE(formats::write_file(path, bytes).ok());
    return path;
  }
  std::string write(const std::string& name, const std::vector<int>& ids) {
    return write(name, std::string(ids.begin(), ids.end()));
  }

  base::ScratchDirectory directory_;
};

std::string complaint(const std::string& path, const TraceShape& shape) {
  const Result<TraceStatistics> trace = read_trace(path, shape);
  if (trace.ok()) return "accepted";
  EXPECT_EQ(trace.status().code(), StatusCode::kInvalidInput);
  return trace.status().message();
}

// Two layers, top-2 of 4 experts, five tokens.
const std::vector<int> kIds = {0, 1, 2, 3,   // token 0: experts 0 and 1, then 2 and 3
                               0, 2, 2, 3,   // ...
                               0, 3, 3, 2,   //
                               1, 0, 2, 0,   //
                               3, 1, 0, 1};  //
const TraceShape kShape{.num_layers = 2, .top_k = 2, .num_experts = 4, .first_layer = 3};

TraceShape with_window(int window_tokens) {
  TraceShape shape = kShape;
  shape.window_tokens = window_tokens;
  return shape;
}

TEST_F(TokenTrace, CountsTheWholeTrace) {
  const Result<TraceStatistics> trace = read_trace(write("a.u8", kIds), kShape);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->num_tokens, 5);
  EXPECT_EQ(trace->num_dropped_tokens, 0);
  const ExpertStatistics& statistics = trace->statistics;
  EXPECT_EQ(statistics.num_experts, 4);
  EXPECT_EQ(statistics.top_k, 2);
  EXPECT_EQ(statistics.ep_size, 1);
  EXPECT_EQ(statistics.iter_start, 0);
  EXPECT_EQ(statistics.iter_stop, 1);
  EXPECT_THAT(statistics.layers, ElementsAre(3, 4));
  EXPECT_THAT(statistics.counts, ElementsAre(4, 3, 1, 2, 2, 1, 4, 3));
}

TEST_F(TokenTrace, KeepsALastWindowThatIsHalfFull) {
  const std::string path = write("a.u8", kIds);
  const Result<TraceStatistics> trace = read_trace(path, with_window(2));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->num_dropped_tokens, 0);
  EXPECT_EQ(trace->statistics.num_iterations(), 3);
  EXPECT_THAT(trace->statistics.counts, ElementsAre(2, 1, 1, 0, 0, 0, 2, 2,    // tokens 0 and 1
                                                    2, 1, 0, 1, 1, 0, 2, 1,    // 2 and 3
                                                    0, 1, 0, 1, 1, 1, 0, 0));  // 4
}

TEST_F(TokenTrace, DropsAndReportsALastWindowThatIsLessThanHalfFull) {
  const std::string path = write("a.u8", kIds);
  const Result<TraceStatistics> four = read_trace(path, with_window(4));
  ASSERT_TRUE(four.ok()) << four.status().message();
  EXPECT_EQ(four->num_tokens, 5);
  EXPECT_EQ(four->num_dropped_tokens, 1);
  EXPECT_THAT(four->statistics.counts, ElementsAre(4, 2, 1, 1, 1, 0, 4, 3));

  const Result<TraceStatistics> ten = read_trace(path, with_window(10));
  ASSERT_TRUE(ten.ok()) << ten.status().message();
  EXPECT_EQ(ten->num_dropped_tokens, 0);
  EXPECT_EQ(ten->statistics.num_iterations(), 1);
  EXPECT_THAT(complaint(path, with_window(11)), HasSubstr("5 tokens do not fill half a window"));
}

TEST_F(TokenTrace, ReadsLittleEndian16) {
  const TraceShape shape{.num_layers = 1, .top_k = 2, .num_experts = 1000};
  const std::string path = write("a.u16", std::string("\x02\x01\x03\x00\xE7\x03\x02\x01", 8));
  const Result<TraceStatistics> trace = read_trace(path, shape);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->num_tokens, 2);
  std::map<size_t, int64_t> counted;
  for (size_t i = 0; i < 1000; ++i) {
    if (trace->statistics.counts[i] > 0) counted[i] = trace->statistics.counts[i];
  }
  EXPECT_THAT(counted, ElementsAre(std::pair(3, 1), std::pair(258, 2), std::pair(999, 1)));
}

TEST_F(TokenTrace, RefusesIdsOutOfRange) {
  std::vector<int> ids = kIds;
  ids[10] = 4;
  EXPECT_THAT(complaint(write("a.u8", ids), kShape),
              AllOf(HasSubstr("a.u8: token 2, layer 4: expected an expert id from 0 to 3, found 4"),
                    HasSubstr("2 layers, top-2, 4 experts")));
  ids[10] = 2;  // chosen beside it too
  EXPECT_THAT(complaint(write("a.u8", ids), kShape),
              HasSubstr("token 2, layer 4: expected 2 different experts, found 2 twice"));
}

TEST_F(TokenTrace, ChecksDroppedTokensToo) {
  std::vector<int> ids = kIds;
  ids[19] = 9;
  EXPECT_THAT(complaint(write("a.u8", ids), with_window(4)), HasSubstr("token 4, layer 4"));
}

TEST_F(TokenTrace, RefusesFilesThatDoNotFit) {
  EXPECT_THAT(complaint(write("a.u8", std::vector<int>{0, 1, 2, 3, 0}), kShape),
              HasSubstr("a.u8: expected tokens of 4 bytes (2 layers × top-2 × 1 bytes), found a "
                        "file of 5 bytes"));
  EXPECT_THAT(complaint(write("a.u8", ""), kShape), HasSubstr("found a file of 0 bytes"));
  EXPECT_THAT(complaint(write("a.u16", std::vector<int>{0, 1, 2, 3}), kShape),
              HasSubstr("expected tokens of 8 bytes"));
  EXPECT_THAT(complaint(write("a.bin", kIds), kShape), HasSubstr("ends in .u8 (uint8) or .u16"));
  EXPECT_THAT(complaint(directory_.file("no.u8"), kShape), HasSubstr("no.u8: cannot be read"));
  TraceShape many = kShape;
  many.num_experts = 257;
  EXPECT_THAT(complaint(write("a.u8", kIds), many), HasSubstr("at most 256 experts"));
}

TEST_F(TokenTrace, RefusesInvalidShapes) {
  const std::string path = write("a.u8", kIds);
  const auto with = [&](int TraceShape::* member, int value) {
    TraceShape shape = kShape;
    shape.*member = value;
    return complaint(path, shape);
  };
  EXPECT_THAT(with(&TraceShape::num_layers, 0), HasSubstr("number of layers: expected"));
  EXPECT_THAT(with(&TraceShape::num_experts, -1), HasSubstr("number of experts: expected"));
  EXPECT_THAT(with(&TraceShape::top_k, 0), HasSubstr("top_k: expected an integer from 1 to 4"));
  EXPECT_THAT(with(&TraceShape::top_k, 5), HasSubstr("top_k: expected an integer from 1 to 4"));
  EXPECT_THAT(with(&TraceShape::first_layer, -1), HasSubstr("first layer: expected"));
  EXPECT_THAT(with(&TraceShape::window_tokens, -1), HasSubstr("tokens of a window: expected"));
}

TEST_F(TokenTrace, RefusesWindowsBeyondMemory) {
  const TraceShape shape{.num_layers = 1, .top_k = 1, .num_experts = 65536, .window_tokens = 1};
  const std::string path = write("a.u16", std::string(2 * 2049, '\0'));
  EXPECT_THAT(complaint(path, shape), HasSubstr("2049 windows of 1 layers × 65536 experts exceed"));
}

// A trace of several blocks of the reader, visited in order and counted window by window.
TEST_F(TokenTrace, AgreesWithASimpleCount) {
  const int num_tokens = 60000;
  const TraceShape shape{.num_layers = 3, .top_k = 2, .num_experts = 7, .window_tokens = 7001};
  std::mt19937 random(3);
  std::vector<int> ids;
  std::map<std::tuple<int, int, int>, int64_t> expected;  // window, layer, expert
  for (int token = 0; token < num_tokens; ++token) {
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<int> experts = {0, 1, 2, 3, 4, 5, 6};
      std::shuffle(experts.begin(), experts.end(), random);
      for (int k = 0; k < 2; ++k) {
        ids.push_back(experts[static_cast<size_t>(k)]);
        ++expected[{token / 7001, layer, ids.back()}];
      }
    }
  }
  const std::string path = write("a.u8", ids);
  const Result<TraceStatistics> trace = read_trace(path, shape);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->statistics.num_iterations(), 9);  // the last window holds 3992 tokens
  for (const auto& [key, count] : expected) {
    const auto [window, layer, expert] = key;
    ASSERT_EQ(trace->statistics.row(window, layer, 0)[static_cast<size_t>(expert)], count);
  }
  std::vector<int> visited;
  const Result<int64_t> visits = visit_trace(path, shape, [&](const TokenChoice& choice) {
    ASSERT_EQ(static_cast<size_t>(choice.token * 3 + choice.layer_idx), visited.size() / 2);
    visited.insert(visited.end(), choice.experts.begin(), choice.experts.end());
  });
  ASSERT_TRUE(visits.ok());
  EXPECT_EQ(*visits, num_tokens);
  EXPECT_EQ(visited, ids);
}

// The table of the same recording counts the tokens of each trace.
TEST_F(TokenTrace, RecordedTracesAgreeWithTheirTable) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded traces to read";
  const std::string folder = std::string(data) + "/routing_trace_deepseek_v2lite";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  const Result<ExpertStatistics> table = read_statistics(folder + "/counts.csv");
  ASSERT_TRUE(table.ok()) << table.status().message();
  const TraceShape shape{.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1};
  const char* domains[] = {"translation", "law", "summary"};
  for (int i = 0; i < 3; ++i) {
    const auto trace = read_trace(fmt::format("{}/{}.ids.u8", folder, domains[i]), shape);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    ASSERT_EQ(trace->statistics.layers, table->layers);
    for (int layer = 0; layer < 26; ++layer) {
      ASSERT_EQ(trace->statistics.layer_load(layer), table->iteration_load(i, layer)) << domains[i];
    }
  }
}

TEST_F(TokenTrace, ReadsALongRecordedTrace) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded traces to read";
  const std::string path = std::string(data) + "/routing_trace_gptoss20b/trace_ids.u8";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist";
  const TraceShape shape{.num_layers = 24, .top_k = 4, .num_experts = 32, .window_tokens = 10000};
  const Result<TraceStatistics> trace = read_trace(path, shape);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->num_tokens, 215438);
  EXPECT_EQ(trace->num_dropped_tokens, 0);
  EXPECT_EQ(trace->statistics.num_iterations(), 22);
  for (int layer = 0; layer < 24; ++layer) {
    const std::vector<int64_t> load = trace->statistics.layer_load(layer);
    EXPECT_EQ(std::accumulate(load.begin(), load.end(), int64_t{0}), 215438 * 4);
  }
  TraceShape swapped = shape;
  std::swap(swapped.num_layers, swapped.top_k);
  EXPECT_FALSE(read_trace(path, swapped).ok());
}

}  // namespace
}  // namespace wideep::recordings
