// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/relaxed_acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace wideep::engine {
namespace {

constexpr RelaxedAcceptance kRelaxed{.top_k = 3, .delta = 0.25, .begin_token = 7, .end_token = 8};

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double each : probabilities) logits.push_back(static_cast<float>(std::log(each)) + 2);
  return logits;
}

TEST(RelaxedAcceptance, KnowsWhereATextThinks) {
  const auto after = [](bool thinks, std::vector<int32_t> tokens) {
    return kRelaxed.thinks_after(thinks, tokens);
  };
  EXPECT_FALSE(after(false, {1, 2}));
  EXPECT_TRUE(after(true, {1, 2}));
  EXPECT_TRUE(after(false, {1, 7, 2}));
  EXPECT_FALSE(after(false, {7, 2, 8}));
  EXPECT_TRUE(after(true, {8, 7}));
  EXPECT_FALSE(after(true, {8}));
}

TEST(RelaxedAcceptance, KeepsWhatIsNearlyAsLikely) {
  const auto kernels = kernels::select_kernels("ref");
  ASSERT_TRUE(kernels.ok());
  const std::vector<float> logits = logits_of({0.05, 0.40, 0.20, 0.12, 0.23});
  const auto kept = [&](int32_t draft, RelaxedAcceptance relaxed = kRelaxed) {
    return relaxed.keep(**kernels, logits, draft);
  };
  EXPECT_EQ(kept(1)->token, 1);
  ASSERT_TRUE(kept(4).has_value());
  EXPECT_EQ(kept(4)->token, 4);
  EXPECT_NEAR(kept(4)->log_probability, std::log(0.23), 1e-5);
  EXPECT_TRUE(kept(2).has_value());
  EXPECT_FALSE(kept(3).has_value());  // the fourth
  EXPECT_FALSE(kept(3, {.top_k = 4, .delta = 0.25}).has_value());
  EXPECT_TRUE(kept(3, {.top_k = 4, .delta = 0.29}).has_value());
  EXPECT_FALSE(kept(4, {.top_k = 3, .delta = 0.1}).has_value());
}

}  // namespace
}  // namespace wideep::engine
