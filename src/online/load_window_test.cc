// SPDX-License-Identifier: Apache-2.0
#include "online/load_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::online {
namespace {

using ::testing::ElementsAre;
using Counts = std::vector<int64_t>;

// 2 layers, 3 experts, top-1; samples of 4 tokens, of which 2 are kept.
LoadWindow small_window() {
  return LoadWindow({.num_layers = 2, .num_experts = 3, .top_k = 1},
                    {.sample_tokens = 4, .num_samples = 2, .decay = 0.5});
}

void iterate(LoadWindow& window, const Counts& first, const Counts& second) {
  window.add(0, first);
  window.add(1, second);
  window.end_iteration();
}

TEST(LoadWindow, StartsEmpty) {
  const LoadWindow window = small_window();
  EXPECT_EQ(window.num_samples(), 0);
  EXPECT_EQ(window.num_iterations(), 0);
  EXPECT_THAT(window.decayed(1), ElementsAre(0, 0, 0));
}

TEST(LoadWindow, IterationsAddUpToSamples) {
  LoadWindow window = small_window();
  iterate(window, {1, 1, 0}, {0, 0, 2});
  EXPECT_EQ(window.num_samples(), 0);  // 2 of 4 tokens
  iterate(window, {0, 2, 1}, {3, 0, 0});
  ASSERT_EQ(window.num_samples(), 1);
  EXPECT_THAT(window.sample(0, 0), ElementsAre(1, 3, 1));
  EXPECT_THAT(window.sample(1, 0), ElementsAre(3, 0, 2));
  // The next one starts anew.
  iterate(window, {9, 0, 0}, {0, 9, 0});
  EXPECT_THAT(window.sample(0, 0), ElementsAre(9, 0, 0));
  EXPECT_THAT(window.sample(0, 1), ElementsAre(1, 3, 1));
}

TEST(LoadWindow, KeepsTheNewestSamples) {
  LoadWindow window = small_window();
  for (const int64_t tokens : {4, 5, 6, 7, 8}) iterate(window, {tokens, 0, 0}, {0, 0, tokens});
  EXPECT_EQ(window.num_samples(), 2);
  EXPECT_EQ(window.samples_completed(), 5);
  EXPECT_THAT(window.sample(0, 0), ElementsAre(8, 0, 0));
  EXPECT_THAT(window.sample(1, 1), ElementsAre(0, 0, 7));
}

TEST(LoadWindow, DecaysAsTensorRtLlm) {
  LoadWindow window = small_window();
  iterate(window, {8, 0, 0}, {0, 8, 0});
  iterate(window, {1, 2, 0}, {0, 3, 0});
  EXPECT_THAT(window.decayed(0), ElementsAre(5, 2, 0));  // 8 · 0.5 + 1
  window.forget_decayed(0);
  EXPECT_THAT(window.decayed(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(window.decayed(1), ElementsAre(0, 7, 0));
}

TEST(LoadWindow, AnIterationWithoutTokensChangesNothing) {
  LoadWindow window = small_window();
  iterate(window, {8, 0, 0}, {0, 8, 0});
  window.end_iteration();
  EXPECT_EQ(window.num_iterations(), 1);
  EXPECT_THAT(window.decayed(0), ElementsAre(8, 0, 0));
}

TEST(LoadWindow, CountsOfOneLayerAddUp) {
  LoadWindow window = small_window();
  window.add(0, std::vector<int32_t>{1, 0, 0});
  iterate(window, {2, 0, 1}, {0, 4, 0});
  EXPECT_THAT(window.sample(0, 0), ElementsAre(3, 0, 1));
}

}  // namespace
}  // namespace wideep::online
