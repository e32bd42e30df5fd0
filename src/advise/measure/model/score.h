// SPDX-License-Identifier: Apache-2.0
//
// How well a model predicts a given text, token by token, to compare a quantised model with the
// original. One rank, in the calling process.
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
  int window = 512;  // tokens; a longer text is cut into pieces that are scored independently
};

// Scores of every token except the first of each window, given the tokens before it in the window.
struct TextScores {
  std::vector<float> log_probabilities;  // natural logarithm, of the token in the text
  std::vector<int32_t> best;             // the model's most likely token at this place

  double perplexity() const;  // e to the mean negative log probability
};

// Adds the scores of one place: logits [vocab], and the token in the text.
void add_scores(std::span<const float> logits, int32_t token, TextScores* scores);

// Fraction of places where both have the same best token. REQUIRES: scores of the same text.
double top1_agreement(const TextScores& a, const TextScores& b);

// Errors (invalid input): the model cannot be read; a text of fewer than two tokens.
Result<TextScores> score_text(const ScoreOptions& options, const std::string& text,
                              base::ThreadPool& pool);

}  // namespace wideep::measure
