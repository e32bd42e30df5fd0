// SPDX-License-Identifier: Apache-2.0
#include "measure/model/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "measure/model/scored_model.h"
#include "tokenizer/tokenizer.h"

namespace wideep::measure {
void add_scores(std::span<const float> logits, int32_t token, TextScores* scores) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{*largest});
  const double of_token = double{logits[static_cast<size_t>(token)]} - double{*largest};
  scores->log_probabilities.push_back(static_cast<float>(of_token - std::log(sum)));
  scores->best.push_back(static_cast<int32_t>(largest - logits.begin()));
}

double TextScores::perplexity() const {
  double sum = 0.0;
  for (const float value : log_probabilities) sum -= double{value};
  return std::exp(sum / static_cast<double>(log_probabilities.size()));
}

double top1_agreement(const TextScores& a, const TextScores& b) {
  size_t same = 0;
  for (size_t i = 0; i < a.best.size(); ++i) same += a.best[i] == b.best[i] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(a.best.size());
}

Result<TextScores> score_text(const ScoreOptions& options, const std::string& text,
                              base::ThreadPool& pool) {
  WIDEEP_TRY_ASSIGN(const tokenizer::Tokenizer tokenizer,
                    tokenizer::Tokenizer::read(options.model_dir));
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (ids.size() < 2) {
    return invalid_input(fmt::format("text: expected 2 tokens or more, found {}", ids.size()));
  }
  WIDEEP_TRY_ASSIGN(const auto model, ScoredModel::load(options.model_dir, options.format, pool));
  WIDEEP_TRY_ASSIGN(const auto pass, ForwardPass::create(*model, {.row_dtype = model->row_dtype},
                                                         options.window, pool));
  TextScores scores;
  std::vector<float> logits;
  const auto window = static_cast<size_t>(options.window);
  for (size_t begin = 0; begin + 1 < ids.size(); begin += window) {
    const std::span<const int32_t> piece =
        std::span(ids).subspan(begin, std::min(window, ids.size() - begin));
    WIDEEP_TRY(pass->forward(piece, &logits));
    const auto vocab = static_cast<size_t>(model->config.vocab_size);
    for (size_t i = 0; i + 1 < piece.size(); ++i) {
      add_scores(std::span(logits).subspan(i * vocab, vocab), piece[i + 1], &scores);
    }
  }
  return scores;
}

}  // namespace wideep::measure
