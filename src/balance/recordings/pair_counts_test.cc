// SPDX-License-Identifier: Apache-2.0
#include "recordings/pair_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PairCounts, CountsTokensThatChoseBoth) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("a.u8");
  const std::string ids = {0, 1, 2, 3, 1, 0,   // token 0: experts 0, 1, 2, then 3, 1, 0
                           2, 1, 3, 0, 1, 3};  // token 1
  ASSERT_TRUE(formats::write_file(path, ids).ok());
  const TraceShape shape{.num_layers = 2, .top_k = 3, .num_experts = 4, .first_layer = 5};
  const Result<PairCounts> pairs = count_pairs(path, shape);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_EQ(pairs->num_experts, 4);
  EXPECT_EQ(pairs->num_tokens, 2);
  EXPECT_THAT(pairs->layers, ElementsAre(5, 6));
  EXPECT_THAT(pairs->row(0, 0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(pairs->row(0, 1), ElementsAre(1, 0, 2, 1));
  EXPECT_THAT(pairs->row(0, 2), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(pairs->row(0, 3), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(pairs->row(1, 0), ElementsAre(0, 2, 0, 2));
  EXPECT_THAT(pairs->row(1, 1), ElementsAre(2, 0, 0, 2));
  EXPECT_THAT(pairs->row(1, 2), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(pairs->row(1, 3), ElementsAre(2, 2, 0, 0));
}

TEST(PairCounts, RefusesWhatTheTraceReaderRefuses) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("a.u8");
  ASSERT_TRUE(formats::write_file(path, std::string({0, 1, 2, 4})).ok());
  const auto complaint = [&](const TraceShape& shape) {
    const Result<PairCounts> pairs = count_pairs(path, shape);
    return pairs.ok() ? "accepted" : pairs.status().message();
  };
  EXPECT_THAT(complaint({.num_layers = 1, .top_k = 2, .num_experts = 4}),
              HasSubstr("a.u8: token 1, layer 0: expected an expert id from 0 to 3, found 4"));
  EXPECT_THAT(complaint({.num_layers = 1, .top_k = 3, .num_experts = 4}),
              HasSubstr("found a file of 4 bytes"));
  EXPECT_THAT(complaint({.num_layers = 0, .top_k = 2, .num_experts = 4}),
              HasSubstr("a.u8: number of layers"));
  EXPECT_THAT(complaint({.num_layers = 1, .top_k = 2, .num_experts = 65536}),
              HasSubstr("pairs of 65536 experts in 1 layers exceed"));
}

// Each of a token's top_k experts meets the top_k − 1 others.
TEST(PairCounts, RecordedPairsAgreeWithLoads) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded traces to read";
  const std::string path = std::string(data) + "/routing_trace_deepseek_v2lite/law.ids.u8";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist";
  const TraceShape shape{.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1};
  const Result<PairCounts> pairs = count_pairs(path, shape);
  const Result<TraceStatistics> trace = read_trace(path, shape);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(pairs->num_tokens, 8327);
  for (int layer = 0; layer < 26; ++layer) {
    const std::vector<int64_t> load = trace->statistics.layer_load(layer);
    for (int a = 0; a < 64; ++a) {
      const auto row = pairs->row(layer, a);
      ASSERT_EQ(std::accumulate(row.begin(), row.end(), int64_t{0}),
                load[static_cast<size_t>(a)] * 5);
      for (int b = 0; b < 64; ++b) {
        ASSERT_EQ(row[static_cast<size_t>(b)], pairs->row(layer, b)[static_cast<size_t>(a)]);
      }
    }
  }
}

}  // namespace
}  // namespace wideep::recordings
