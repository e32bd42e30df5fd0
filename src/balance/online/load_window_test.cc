// SPDX-License-Identifier: Apache-2.0
//
// Windows of three experts are filled by hand. Then two ways to be wrong are held against each
// other: a change of text must end a sample at once, and noise must not, in 3,000 iterations of 8
// to 512 tokens. A change that is missed mixes two loads, and experts move for one that never was;
// a false one leaves samples with too few tokens to plan from.
#include "online/load_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

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

// 64 tokens of one kind of text, of a window of 16 experts in one layer.
Counts tokens_of(int kind, std::mt19937& random, int tokens = 64) {
  Counts counts(16);
  for (int token = 0; token < tokens; ++token) {
    ++counts[random() % 2 == 0 ? random() % 16 : static_cast<size_t>(kind) * 4 + random() % 2];
  }
  return counts;
}

TEST(LoadWindow, AnotherTextBeginsASample) {
  LoadWindow window({.num_layers = 1, .num_experts = 16, .top_k = 1}, {.sample_tokens = 1000});
  std::mt19937 random(2);
  const auto iterate = [&](int kind) {
    window.add(0, tokens_of(kind, random));
    window.end_iteration();
  };
  for (int i = 0; i < 4; ++i) iterate(0);
  EXPECT_EQ(window.num_samples(), 0);
  EXPECT_FALSE(window.open_is_new_text());
  iterate(1);
  ASSERT_EQ(window.num_samples(), 1);
  EXPECT_EQ(window.sample_tokens(0), 4 * 64);  // of the first text only
  EXPECT_EQ(window.open_tokens(), 64);
  EXPECT_TRUE(window.open_is_new_text());
  for (int i = 0; i < 15; ++i) iterate(1);
  EXPECT_EQ(window.num_samples(), 2);  // complete
  EXPECT_EQ(window.sample_tokens(0), 1024);
  EXPECT_FALSE(window.open_is_new_text());
  // Too few tokens to keep.
  iterate(0);
  window.add(0, tokens_of(2, random, 32));
  window.end_iteration();
  EXPECT_EQ(window.num_samples(), 3);
  iterate(0);
  EXPECT_EQ(window.num_samples(), 3);
  EXPECT_EQ(window.open_tokens(), 64);
}

// One kind of text closes no sample before it is complete: kOtherTextNoise gives one false alarm in
// 30,000 iterations, and these are 3,000.
TEST(LoadWindow, NoiseIsNoOtherText) {
  for (const int tokens : {8, 64, 512}) {
    LoadWindow window({.num_layers = 1, .num_experts = 16, .top_k = 1}, {.sample_tokens = 1024});
    std::mt19937 random(3);
    for (int i = 0; i < 1000; ++i) {
      window.add(0, tokens_of(0, random, tokens));
      window.end_iteration();
    }
    EXPECT_EQ(window.samples_completed(), 1000 * tokens / 1024) << tokens << " tokens";
  }
}

TEST(LoadWindow, CountsOfOneLayerAddUp) {
  LoadWindow window = small_window();
  window.add(0, std::vector<int32_t>{1, 0, 0});
  iterate(window, {2, 0, 1}, {0, 4, 0});
  EXPECT_THAT(window.sample(0, 0), ElementsAre(3, 0, 1));
}

}  // namespace
}  // namespace wideep::online
