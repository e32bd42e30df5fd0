// SPDX-License-Identifier: Apache-2.0
//
// That both forms of a comparison compute the same, and that a comparison finds what it should.
#include "measure/model/ablation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "measure/model/kernel_ablation.h"

namespace wideep::measure {
namespace {

const kernels::Kernels& some_kernels() { return *kernels::select_kernels(nullptr).value(); }

TEST(Ablation, TellsWhichFormIsSlower) {
  using namespace std::chrono_literals;
  int first = 0, second = 0;
  const AblatedTest found = run_in_turn("pause", 3, 0.0,
                                        {[&] {
                                           ++first;
                                           std::this_thread::sleep_for(12ms);
                                         },
                                         [&] {
                                           ++second;
                                           std::this_thread::sleep_for(2ms);
                                         }});
  EXPECT_EQ(first, 4);  // once to warm up
  EXPECT_EQ(second, 4);
  ASSERT_EQ(found.ratios().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(found.before[i], 0.012);
    EXPECT_GE(found.after[i], 0.002);
    EXPECT_DOUBLE_EQ(found.ratios()[i], found.before[i] / found.after[i]);
  }
  EXPECT_LE(found.ratio().low, found.ratio().median);
}

TEST(Ablation, SharedSumsAreEqual) {
  constexpr int kHidden = 200, kTopK = 3, kTokens = 5;
  SharedSum sum(some_kernels(), kHidden, kTopK, kTokens);
  const std::vector<float> start = sum.residual();
  sum.fused();
  const std::vector<float> fused = sum.residual();
  sum.residual() = start;
  sum.apart();
  double moved = 0.0;
  for (size_t i = 0; i < start.size(); ++i) {
    EXPECT_NEAR(fused[i], sum.residual()[i], 1e-5) << i;
    moved += std::abs(fused[i] - start[i]);
  }
  EXPECT_GT(moved / static_cast<double>(start.size()), 0.5);
}

// Pages and tasks that are not full, and a second task.
TEST(Ablation, JointQueriesKeysAndValuesGiveTheSameBits) {
  model::ModelConfig config;
  config.num_heads = 2;
  config.kv_lora_rank = 32;
  config.qk_nope_head_dim = 16;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 24;
  for (const int tokens : {1, 65, 1100}) {
    SeparateQkv attention(some_kernels(), config, tokens);
    attention.separate();
    const std::vector<float> separate = attention.out();
    std::ranges::fill(attention.out(), 0.0f);
    attention.joint();
    EXPECT_EQ(separate, attention.out()) << tokens;
    // Of the first position, which sees itself alone, each value is its own: far from zero.
    double sum = 0.0;
    for (int i = 0; i < config.num_heads * config.v_head_dim; ++i) sum += std::abs(separate[i]);
    EXPECT_GT(sum, 1.0);
    for (const float value : separate) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace wideep::measure
