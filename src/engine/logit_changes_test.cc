// SPDX-License-Identifier: Apache-2.0
#include "engine/logit_changes.h"

#include <gtest/gtest.h>

#include <vector>

namespace wideep::engine {
namespace {

std::vector<float> changed(const Request& request, const std::vector<int32_t>& answer,
                           const std::vector<int32_t>& drafts = {}) {
  std::vector<float> logits = {1.0f, -1.0f, 2.0f, 0.5f, 4.0f};
  change_logits(request, answer, drafts, logits);
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

}  // namespace
}  // namespace wideep::engine
