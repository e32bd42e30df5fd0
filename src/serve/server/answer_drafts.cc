// SPDX-License-Identifier: Apache-2.0
#include "server/answer_drafts.h"

#include <map>
#include <string>

namespace wideep::server {

using nlohmann::ordered_json;

void AnswerDrafts::add(int step_drafts) {
  if (step_drafts >= 0) {
    verifies_ = step_drafts > 0;
    if (verifies_) steps_.push_back({.drafted = step_drafts, .accepted = 0});
  } else if (verifies_) {
    ++steps_.back().accepted;  // each token of a step but the first comes after a right draft
  }
}

AnswerDrafts& AnswerDrafts::operator+=(const AnswerDrafts& other) {
  steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
  return *this;
}

ordered_json AnswerDrafts::json(DraftMetrics what, int max) const {
  int64_t drafted = 0, accepted = 0;
  std::vector<int64_t> histogram(static_cast<size_t>(max) + 1);
  std::map<int, std::vector<int64_t>> by_length;
  for (const Step& step : steps_) {
    drafted += step.drafted;
    accepted += step.accepted;
    ++histogram[static_cast<size_t>(step.accepted)];
    std::vector<int64_t>& of_length = by_length[step.drafted];
    of_length.resize(static_cast<size_t>(step.drafted) + 1);
    ++of_length[static_cast<size_t>(step.accepted)];
  }
  const auto count = static_cast<double>(steps_.size());
  ordered_json lengths = ordered_json::object();
  for (const auto& [length, counts] : by_length) lengths[std::to_string(length)] = counts;
  ordered_json json = {
      {"mean_acceptance_length",
       steps_.empty() ? 1.0 : 1.0 + static_cast<double>(accepted) / count},
      {"draft_acceptance_rate",
       drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted)},
      {"acceptance_histogram", histogram},
      {"acceptance_histogram_by_draft_length", std::move(lengths)},
      {"num_spec_steps", steps_.size()},
      {"num_accepted_draft_tokens", accepted},
      {"num_draft_tokens", drafted},
      {"num_spec_tokens", max}};
  if (what != DraftMetrics::kDetailed) return json;
  ordered_json per_step_accepted = ordered_json::array(), per_step_drafted = per_step_accepted;
  for (const Step& step : steps_) {
    per_step_accepted.push_back(step.accepted);
    per_step_drafted.push_back(step.drafted);
  }
  json["per_step_accepted"] = std::move(per_step_accepted);
  json["per_step_drafted"] = std::move(per_step_drafted);
  return json;
}

}  // namespace wideep::server
