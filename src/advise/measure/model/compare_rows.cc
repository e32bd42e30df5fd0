// SPDX-License-Identifier: Apache-2.0
#include "measure/model/compare_rows.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/try.h"
#include "tokenizer/tokenizer.h"

namespace wideep::measure {
namespace {

// ln Σ eˣ. The largest logit is subtracted first, so that exp does not overflow.
double log_sum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return largest + std::log(sum);
}

// Kullback-Leibler divergence of the distributions, in nats.
double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_sum = log_sum(p), q_sum = log_sum(q);
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_sum;
    sum += std::exp(log_p) * (log_p - (double{q[i]} - q_sum));
  }
  return sum;
}

// Runs both passes over a window of a text. The logits of token i predict token i + 1, so those of
// the last token are not used.
Status compare_window(std::span<const int32_t> ids, size_t vocab, ForwardPass& plain,
                      ForwardPass& coded, RowsComparison* result) {
  std::vector<float> p, q;
  WIDEEP_TRY(plain.forward(ids, &p));
  WIDEEP_TRY(coded.forward(ids, &q));
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto at = [&](const std::vector<float>& logits) {
      return std::span(logits).subspan(i * vocab, vocab);
    };
    add_scores(at(p), ids[i + 1], &result->plain);
    add_scores(at(q), ids[i + 1], &result->coded);
    result->mean_kl += divergence(at(p), at(q));
  }
  return {};
}

}  // namespace

int64_t RowsComparison::bytes_plain(const LayerNoise& layer) const {
  return (layer.dispatched.rows + layer.returned.rows) * static_cast<int64_t>(plain_bytes);
}

int64_t RowsComparison::bytes_coded(const LayerNoise& layer) const {
  return layer.dispatched.rows * static_cast<int64_t>(dispatch_bytes) +
         layer.returned.rows * static_cast<int64_t>(combine_bytes);
}

Result<RowsComparison> compare_rows(const RowsOptions& options,
                                    const std::vector<std::string>& texts, base::ThreadPool& pool) {
  WIDEEP_TRY_ASSIGN(const auto tokenizer, tokenizer::Tokenizer::read(options.model_dir));
  WIDEEP_TRY_ASSIGN(const auto scored, ScoredModel::load(options.model_dir, {}, pool));
  const int hidden = scored->config.hidden_size;
  WIDEEP_TRY(kernels::check_row_format(options.dispatch, hidden));
  WIDEEP_TRY(kernels::check_row_format(options.combine, hidden));
  const model::MoeOptions plain_rows{.row_dtype = scored->row_dtype};
  const model::MoeOptions coded_rows{.row_dtype = scored->row_dtype,
                                     .dispatch = options.dispatch,
                                     .combine = options.combine,
                                     .measure_noise = true};
  WIDEEP_TRY_ASSIGN(const auto plain,
                    ForwardPass::create(*scored, plain_rows, options.window, pool));
  WIDEEP_TRY_ASSIGN(const auto coded,
                    ForwardPass::create(*scored, coded_rows, options.window, pool));
  RowsComparison result{
      .plain_bytes = kernels::row_bytes(kernels::row_format(scored->row_dtype), hidden),
      .dispatch_bytes = kernels::row_bytes(options.dispatch, hidden),
      .combine_bytes = kernels::row_bytes(options.combine, hidden)};
  const auto window = static_cast<size_t>(options.window);
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (size_t begin = 0; begin + 1 < ids.size(); begin += window) {
      WIDEEP_TRY(compare_window(std::span(ids).subspan(begin, std::min(window, ids.size() - begin)),
                                static_cast<size_t>(scored->config.vocab_size), *plain, *coded,
                                &result));
    }
  }
  if (result.plain.best.empty()) {
    return invalid_input("prompts: expected at least one of 2 tokens or more, found none");
  }
  result.mean_kl /= static_cast<double>(result.plain.best.size());
  result.layers = coded->noise();
  return result;
}

}  // namespace wideep::measure
