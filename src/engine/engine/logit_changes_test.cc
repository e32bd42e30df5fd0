// SPDX-License-Identifier: Apache-2.0
//
// Each change has values by hand. Then 2,000 random requests are held bit for bit against the
// formulas of vLLM's documentation, one logit at a time, with tokens that the vocabulary does not
// have. The answer is cut into tokens and drafts at random, for a draft counts as the token that it
// may become: otherwise speculation would change answers.
#include "engine/logit_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace wideep::engine {
namespace {

std::vector<float> changed(const Request& request, const std::vector<int32_t>& answer,
                           const std::vector<int32_t>& drafts = {}) {
  std::vector<float> logits = {1.0f, -1.0f, 2.0f, 0.5f, 4.0f};
  change_logits(request, {}, answer, drafts, logits);
  return logits;
}

TEST(LogitChangesTest, NothingIsAskedFor) {
  const Request request{.prompt = std::vector<int32_t>{0, 1}};
  EXPECT_FALSE(changes_logits(request));
  EXPECT_EQ(changed(request, {2}), (std::vector<float>{1.0f, -1.0f, 2.0f, 0.5f, 4.0f}));
}

TEST(LogitChangesTest, PenaltiesOfTokensThatHaveCome) {
  Request request{.prompt = std::vector<int32_t>{0, 0, 1}};
  request.sampling.frequency_penalty = 0.5f;
  EXPECT_TRUE(changes_logits(request));
  EXPECT_EQ(changed(request, {2, 3, 2}), (std::vector<float>{1.0f, -1.0f, 1.0f, 0.0f, 4.0f}));
  request.sampling.presence_penalty = 1.0f;
  EXPECT_EQ(changed(request, {2, 3, 2}), (std::vector<float>{1.0f, -1.0f, 0.0f, -1.0f, 4.0f}));
  request.sampling.frequency_penalty = request.sampling.presence_penalty = 0.0f;
  request.sampling.repetition_penalty = 2.0f;
  EXPECT_EQ(changed(request, {2, 2}), (std::vector<float>{0.5f, -2.0f, 1.0f, 0.5f, 4.0f}));
}

// Drafts count as the tokens that they become.
TEST(LogitChangesTest, DraftsAreTokens) {
  Request request{.prompt = std::vector<int32_t>{0}};
  request.sampling.frequency_penalty = 0.25f;
  request.sampling.presence_penalty = -1.0f;
  request.sampling.repetition_penalty = 1.5f;
  EXPECT_EQ(changed(request, {2, 3, 2, 4}), changed(request, {2, 3}, {2, 4}));
}

TEST(LogitChangesTest, BiasesComeFirst) {
  Request request{.prompt = std::vector<int32_t>{0}};
  request.bias = {{.token = 1, .bias = 3.0f}, {.token = 99, .bias = 1.0f}};
  EXPECT_EQ(changed(request, {})[1], 2.0f);
  request.sampling.repetition_penalty = 2.0f;
  EXPECT_EQ(changed(request, {1})[1], 1.0f);
}

// One logit at a time, as vLLM's documentation has it.
float slowly_changed(const Request& request, const std::vector<int32_t>& answer, int32_t token,
                     float logit) {
  const SamplingParams& params = request.sampling;
  const std::vector<int32_t>& prompt = request.prompt.ids();
  for (const TokenBias& each : request.bias) {
    if (each.token == token) logit += each.bias;
  }
  const auto in_answer = std::ranges::count(answer, token);
  if (in_answer > 0 || std::ranges::count(prompt, token) > 0) {
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  logit -= params.frequency_penalty * static_cast<float>(in_answer);
  return in_answer > 0 ? logit - params.presence_penalty : logit;
}

TEST(LogitChangesTest, TheSameBitsAsOneLogitAtATime) {
  std::mt19937 random(11);
  const auto below = [&](int count) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(count));
  };
  const auto tokens = [&](int max, int vocab) {
    std::vector<int32_t> text(static_cast<size_t>(below(max)));
    for (int32_t& each : text) each = below(vocab + 3) - 1;  // some that the model does not have
    return text;
  };
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (int round = 0; round < 2000; ++round) {
    const int vocab = 1 + below(40);
    Request request{.prompt = tokens(30, vocab)};
    SamplingParams& params = request.sampling;
    // Each of them is left out every other time.
    if (below(2) == 0) params.repetition_penalty = 0.5f + static_cast<float>(below(100)) / 64.0f;
    if (below(2) == 0) params.frequency_penalty = static_cast<float>(below(400) - 200) / 100.0f;
    if (below(2) == 0) params.presence_penalty = static_cast<float>(below(400) - 200) / 100.0f;
    for (int i = below(4); i > 0; --i) {
      request.bias.push_back({.token = below(vocab + 2), .bias = normal(random)});
    }
    std::vector<int32_t> answer = tokens(60, vocab);
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& each : logits) each = normal(random);
    const std::vector<float> before = logits;
    std::vector<float> expected;
    for (int32_t token = 0; token < vocab; ++token) {
      expected.push_back(
          slowly_changed(request, answer, token, logits[static_cast<size_t>(token)]));
    }
    const auto num_drafts = static_cast<size_t>(below(static_cast<int>(answer.size()) + 1));
    const std::span<const int32_t> whole = answer;
    change_logits(request, {}, whole.first(answer.size() - num_drafts), whole.last(num_drafts),
                  logits);
    ASSERT_EQ(logits, expected) << "round " << round;
    ASSERT_TRUE(changes_logits(request) || logits == before);
  }
}

}  // namespace
}  // namespace wideep::engine
