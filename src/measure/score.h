// SPDX-License-Identifier: Apache-2.0
//
// How well a model predicts a given text, token by token: what quantisation is judged by. One rank,
// in the calling process.
//
// Thread safety: as model::Model; one run at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/weight_format.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ScoreOptions {
  std::string model_dir;
  std::optional<kernels::WeightFormat> format;  // nothing: as stored
  int window = 512;  // tokens; a longer text is cut, each piece read without what came before
};

// Of every token but the first of each window, given those before it in the window.
struct TextScores {
  std::vector<float> log_probabilities;  // of the token that stands there, natural
  std::vector<int32_t> best;             // the token that the model holds most likely there

  double perplexity() const;  // e to the mean negative log probability
};

// Of one place: logits [vocab], and the token that stands there.
void add_scores(std::span<const float> logits, int32_t token, TextScores* scores);

// The share of places at which both have the same best token. REQUIRES: scores of the same text.
double top1_agreement(const TextScores& a, const TextScores& b);

// Errors (invalid input): as reading a model; a text of fewer than two tokens.
Result<TextScores> score_text(const ScoreOptions& options, const std::string& text,
                              base::ThreadPool& pool);

}  // namespace wideep::measure
