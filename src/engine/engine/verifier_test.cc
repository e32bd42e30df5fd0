// SPDX-License-Identifier: Apache-2.0
#include "engine/verifier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace wideep::engine {
namespace {

const kernels::Kernels& kernels() { return *kernels::select_kernels(nullptr).value(); }

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits of 8 tokens of which one is the likeliest.
std::vector<float> logits_for(int token) {
  std::vector<float> logits(8, -1.0f);
  logits[static_cast<size_t>(token)] = 2.0f;
  return logits;
}

class VerifierOfLogits : public testing::Test {
 protected:
  // The verdicts on a sequence with these drafts; logits[i] follow draft i.
  std::vector<Verdict> verify(std::vector<int32_t> drafts, std::vector<std::vector<float>> logits,
                              SamplingParams sampling = {}) const {
    Sequence sequence;
    sequence.request.prompt = std::vector<int32_t>{1, 2};
    sequence.request.max_tokens = 100;
    sequence.request.sampling = sampling;
    sequence.tokens = {1, 2};
    sequence.num_verifying = static_cast<int>(drafts.size());
    sequence.drafts = std::move(drafts);
    const Verifier verifier(kernels(), end_tokens_, relaxed_, true);
    return verifier.verify(sequence, [&](int after) -> std::span<const float> {
      return logits[static_cast<size_t>(after)];
    });
  }

  const std::vector<int> end_tokens_ = {7};
  const std::optional<RelaxedAcceptance> relaxed_;
};

TEST_F(VerifierOfLogits, NoTokenFollowsFromLogitsThatAreNoNumbers) {
  std::vector<float> one_nan = logits_for(3), infinite = logits_for(3);
  one_nan[6] = kNaN;
  infinite[3] = kInfinity;
  for (const std::vector<float>& logits :
       {one_nan, infinite, std::vector<float>(8, kNaN), std::vector<float>(8, -kInfinity)}) {
    for (const float temperature : {0.0f, 1.0f}) {
      const auto verdicts = verify({}, {logits},
                                   {.temperature = temperature,
                                    .presence_penalty = temperature,
                                    .top_log_probabilities = 2});
      ASSERT_EQ(verdicts.size(), 1u);
      EXPECT_EQ(verdicts[0].reason, FinishReason::kNotNumbers);
      EXPECT_EQ(verdicts[0].sampled.token, kNoToken);
    }
  }
}

TEST_F(VerifierOfLogits, TokensThatAreImpossibleAreNumbers) {
  std::vector<float> logits = logits_for(3);
  logits[5] = -kInfinity;
  const auto verdicts = verify({}, {logits});
  EXPECT_EQ(verdicts[0].sampled.token, 3);
  EXPECT_EQ(verdicts[0].reason, FinishReason::kNotFinished);
}

// The drafts before stay.
TEST_F(VerifierOfLogits, DraftsAreVerifiedUpToThere) {
  std::vector<float> broken = logits_for(6);
  broken[0] = kNaN;
  const auto verdicts = verify({3, 4, 6}, {logits_for(3), logits_for(4), broken, logits_for(2)});
  ASSERT_EQ(verdicts.size(), 3u);
  EXPECT_EQ(verdicts[0].sampled.token, 3);
  EXPECT_EQ(verdicts[1].sampled.token, 4);
  EXPECT_EQ(verdicts[2].sampled.token, kNoToken);
  EXPECT_EQ(verdicts[1].reason, FinishReason::kNotFinished);
  EXPECT_EQ(verdicts[2].reason, FinishReason::kNotNumbers);
}

// All stages of a pipeline must find the same reason from the token alone.
TEST_F(VerifierOfLogits, TheReasonFollowsFromTheToken) {
  Sequence sequence;
  sequence.request.prompt = std::vector<int32_t>{1};
  sequence.request.max_tokens = 1;
  sequence.tokens = {1};
  const Verifier verifier(kernels(), end_tokens_, relaxed_, true);
  EXPECT_EQ(verifier.reason_to_finish(sequence, kNoToken, 0), FinishReason::kNotNumbers);
  sequence.cancelled = true;
  EXPECT_EQ(verifier.reason_to_finish(sequence, kNoToken, 0), FinishReason::kNotNumbers);
}

}  // namespace
}  // namespace wideep::engine
