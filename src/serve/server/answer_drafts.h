// SPDX-License-Identifier: Apache-2.0
//
// What speculation has done for one request, in the shape of vLLM's per-request metrics (its option
// --per-request-spec-decode-metrics), which NVIDIA's aiperf reads from replies.
//
// Not thread safe.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace wideep::server {

enum class DraftMetrics { kNone, kSummary, kDetailed };

class AnswerDrafts {
 public:
  // A token of the request. step_drafts: as run::Token.
  void add(int step_drafts);
  // most: the longest draft of the run. The value of "metrics.speculative_decoding".
  nlohmann::ordered_json json(DraftMetrics what, int max) const;
  AnswerDrafts& operator+=(const AnswerDrafts& other);

 private:
  struct Step {
    int drafted = 0;
    int accepted = 0;
  };
  std::vector<Step> steps_;  // those that verified drafts
  bool verifies_ = false;    // the present step does
};

}  // namespace wideep::server
