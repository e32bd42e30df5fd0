// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::recordings {
namespace {

using balance::ModelLoad;
using balance::WindowedLoad;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One layer, two ranks, two experts; iteration i has 10 i and 1 tokens.
ExpertStatistics statistics(int iterations) {
  ExpertStatistics result;
  result.num_experts = 2;
  result.ep_size = 2;
  result.iter_start = 5;
  result.iter_stop = 5 + iterations;
  result.layers = {3};
  for (int i = 0; i < iterations; ++i) {
    result.counts.insert(result.counts.end(), {4 * i, 0, 6 * i, 1});
  }
  return result;
}

std::vector<double> hot_tokens(const WindowedLoad& load) {
  std::vector<double> tokens;
  for (const auto& window : load.load[0]) tokens.push_back(window[0]);
  return tokens;
}

TEST(WindowedLoad, OneIterationEachSummedOverRanks) {
  const WindowedLoad load = windowed_load(statistics(3), 0).value();
  EXPECT_THAT(load.layers, ElementsAre(3));
  EXPECT_EQ(load.num_windows(), 3);
  EXPECT_THAT(hot_tokens(load), ElementsAre(0, 10, 20));
  EXPECT_THAT(load.load[0][2], ElementsAre(20, 1));
}

TEST(WindowedLoad, TheRestIsAWindowIfHalfAsLong) {
  EXPECT_THAT(hot_tokens(windowed_load(statistics(5), 3).value()), ElementsAre(30, 70));
  EXPECT_THAT(hot_tokens(windowed_load(statistics(4), 3).value()), ElementsAre(60));
  EXPECT_THAT(hot_tokens(windowed_load(statistics(4), 4).value()), ElementsAre(60));
}

TEST(WindowedLoad, NotTooManyByDefault) {
  const WindowedLoad load = windowed_load(statistics(100), 0).value();
  EXPECT_EQ(load.iterations_per_window, 4);
  EXPECT_EQ(load.num_windows(), 25);
}

TEST(WindowedLoad, RefusesWindowsLongerThanAll) {
  EXPECT_THAT(windowed_load(statistics(3), 4).status().message(),
              HasSubstr("windows of 1 to 3 iterations (all recorded), found 4"));
  EXPECT_FALSE(windowed_load(statistics(3), -1).ok());
}

TEST(ModelLoad, SumsIterationsAndRanks) {
  const ExpertStatistics recorded{.num_experts = 2,
                                  .ep_size = 2,
                                  .iter_stop = 2,
                                  .layers = {5},
                                  .counts = {1, 2, 10, 20, 100, 200, 1000, 2000}};
  const ModelLoad load = model_load(recorded);
  EXPECT_THAT(load.layers, ElementsAre(5));
  EXPECT_THAT(load.load, ElementsAre(ElementsAre(1111.0, 2222.0)));
}

}  // namespace
}  // namespace wideep::recordings
