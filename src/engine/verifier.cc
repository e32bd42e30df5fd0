// SPDX-License-Identifier: Apache-2.0
#include "engine/verifier.h"

#include <algorithm>

namespace wideep::engine {

std::vector<Verdict> Verifier::verify(
    Sequence& sequence, const std::function<std::span<const float>(int)>& logits_after) const {
  if (relaxed_) {
    const std::span<const int32_t> text = sequence.tokens;
    sequence.thinks = relaxed_->thinks_after(sequence.thinks, text.subspan(sequence.thought_to));
    sequence.thought_to = text.size();
  }
  bool thinks = sequence.thinks;
  std::vector<Verdict> verdicts;
  for (int i = 0; i <= sequence.num_verifying; ++i) {
    verdicts.push_back(verdict(sequence, i, logits_after(i), thinks));
    const int32_t token = verdicts.back().sampled.token;
    if (verdicts.back().reason != FinishReason::kNotFinished || i == sequence.num_verifying ||
        token != sequence.drafts[static_cast<size_t>(i)]) {
      break;
    }
    if (relaxed_) thinks = relaxed_->thinks_after(thinks, std::span(&token, 1));
  }
  return verdicts;
}

Verdict Verifier::verdict(const Sequence& sequence, int index, std::span<const float> logits,
                          bool thinks) const {
  const Request& request = sequence.request;
  const int step = sequence.num_generated() + index;
  Verdict verdict{.sampled = sample(kernels_, logits, request.sampling, request.draw, step)};
  if (thinks) {
    if (const auto kept = keep_draft(sequence, index, logits)) verdict.sampled = *kept;
  }
  verdict.reason = reason_to_finish(sequence, verdict.sampled.token, index);
  const int likely = reports_ ? request.sampling.top_log_probabilities : 0;
  if (likely > 0) verdict.likely = most_likely(kernels_, logits, likely);
  return verdict;
}

// Only greedy requests relax: a sampled token is already one of many.
std::optional<Sampled> Verifier::keep_draft(const Sequence& sequence, int index,
                                            std::span<const float> logits) const {
  if (index == sequence.num_verifying || sequence.request.sampling.temperature > 0) return {};
  return relaxed_->keep(kernels_, logits, sequence.drafts[static_cast<size_t>(index)]);
}

FinishReason Verifier::reason_to_finish(const Sequence& sequence, int32_t token, int before) const {
  if (sequence.cancelled) return FinishReason::kStop;
  const bool ends_here = std::ranges::find(end_tokens_, token) != end_tokens_.end();
  if (ends_here && !sequence.request.ignore_eos) return FinishReason::kStop;
  return sequence.num_generated() + before + 1 == sequence.request.max_tokens
             ? FinishReason::kLength
             : FinishReason::kNotFinished;
}

}  // namespace wideep::engine
