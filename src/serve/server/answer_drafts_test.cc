// SPDX-License-Identifier: Apache-2.0
#include "server/answer_drafts.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

TEST(AnswerDrafts, CountsStepsWithDrafts) {
  AnswerDrafts drafts;
  EXPECT_EQ(drafts.json(DraftMetrics::kSummary, 2)["mean_acceptance_length"], 1.0);
  drafts.add(0);  // a step without drafts
  drafts.add(3);  // of 3 drafts 2 are right
  drafts.add(-1);
  drafts.add(-1);
  drafts.add(1);  // none is right
  drafts.add(0);
  AnswerDrafts other;
  other.add(3);
  other.add(-1);
  drafts += other;
  const ordered_json json = drafts.json(DraftMetrics::kDetailed, 4);
  EXPECT_EQ(json["mean_acceptance_length"], 2.0);
  EXPECT_DOUBLE_EQ(json["draft_acceptance_rate"], 3.0 / 7);
  EXPECT_EQ(json["acceptance_histogram"], ordered_json({1, 1, 1, 0, 0}));
  EXPECT_EQ(json["acceptance_histogram_by_draft_length"],
            ordered_json({{"1", {1, 0}}, {"3", {0, 1, 1, 0}}}));
  EXPECT_EQ(json["num_spec_steps"], 3);
  EXPECT_EQ(json["num_accepted_draft_tokens"], 3);
  EXPECT_EQ(json["num_draft_tokens"], 7);
  EXPECT_EQ(json["num_spec_tokens"], 4);
  EXPECT_EQ(json["per_step_accepted"], ordered_json({2, 0, 1}));
  EXPECT_EQ(json["per_step_drafted"], ordered_json({3, 1, 3}));
  EXPECT_FALSE(drafts.json(DraftMetrics::kSummary, 4).contains("per_step_accepted"));
}

}  // namespace
}  // namespace wideep::server
