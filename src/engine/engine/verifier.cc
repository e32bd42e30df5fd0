// SPDX-License-Identifier: Apache-2.0
//
// A step's rows are looked at one after the other, as long as the token that is sampled is the
// draft that stands there. The first other token is the right one all the same: it was sampled from
// logits after a right text. What the rows depend on, thoughts and the place in the grammar, is
// followed in copies, because a row after a wrong draft must leave no trace in the sequence.
#include "engine/verifier.h"

#include <algorithm>

#include "base/check.h"
#include "engine/constraints.h"
#include "engine/logit_changes.h"

namespace wideep::engine {

std::vector<Verdict> Verifier::verify(
    Sequence& sequence, const std::function<std::span<const float>(int)>& logits_after) const {
  if (relaxed_) {
    const std::span<const int32_t> text = sequence.tokens;
    sequence.thinks = relaxed_->thinks_after(sequence.thinks, text.subspan(sequence.thought_to));
    sequence.thought_to = text.size();
  }
  follow_grammar(sequence);
  bool thinks = sequence.thinks;
  grammar::Progress followed = sequence.followed;
  std::vector<Verdict> verdicts;
  for (int i = 0; i <= sequence.num_verifying; ++i) {
    verdicts.push_back(verdict(sequence, i, logits_after(i), thinks, followed));
    const int32_t token = verdicts.back().sampled.token;
    if (verdicts.back().reason != FinishReason::kNotFinished || i == sequence.num_verifying ||
        token != sequence.drafts[static_cast<size_t>(i)]) {
      break;
    }
    if (relaxed_) thinks = relaxed_->thinks_after(thinks, std::span(&token, 1));
    if (sequence.constraint) followed = sequence.constraint->after(followed, token);
  }
  return verdicts;
}

// Also the tokens that another rank has sampled, or this one before the sequence was paused.
void Verifier::follow_grammar(Sequence& sequence) const {
  if (sequence.request.grammar == nullptr) return;
  if (sequence.constraint == nullptr) {
    WIDEEP_CHECK(constraints_ != nullptr);
    sequence.constraint = constraints_->find(*sequence.request.grammar);
  }
  const std::span<const int32_t> text = sequence.tokens;
  sequence.constraint->follow(text.subspan(sequence.request.prompt.size()), &sequence.followed);
}

Sampled Verifier::sample_allowed(const Sequence& sequence, const Draw& draw,
                                 std::span<const float> logits,
                                 const grammar::Progress& followed) const {
  grammar::Constraint& constraint = *sequence.constraint;
  grammar::TokenBits bits;
  const AllowedTokens allowed{
      .has = [&](int32_t token) { return constraint.allows(followed, token); },
      .bits = [&]() -> std::span<const uint64_t> {
        constraint.find_allowed(followed, static_cast<int>(logits.size()), &bits);
        return bits;
      }};
  return sample(kernels_, logits, sequence.request.sampling, draw, &allowed);
}

Verdict Verifier::verdict(const Sequence& sequence, int index, std::span<const float> logits,
                          bool thinks, const grammar::Progress& followed) const {
  if (sequence.is_spoiled || !are_numbers(kernels_, logits)) {
    return {.sampled = {.token = kNoToken},
            .reason = reason_to_finish(sequence, kNoToken, index),
            .likely = {}};
  }
  const Request& request = sequence.request;
  // Forced tokens are drawn from nothing: an answer is the same with and without them.
  const Draw draw{.request = request.draw,
                  .step = sequence.num_generated() + index - request.rules->num_forced()};
  // Log-probabilities are those of the logits before.
  const bool changes = changes_logits(request);
  std::vector<float> changed;
  if (changes) {
    changed.assign(logits.begin(), logits.end());
    change_logits(request, end_tokens_, std::span(sequence.tokens).subspan(request.prompt.size()),
                  std::span(sequence.drafts).first(static_cast<size_t>(index)), changed);
  }
  const std::span<const float> used = changes ? std::span<const float>(changed) : logits;
  Verdict verdict{.sampled = sequence.constraint ? sample_allowed(sequence, draw, used, followed)
                                                 : sample(kernels_, used, request.sampling, draw)};
  if (changes) {
    verdict.sampled.log_probability = log_probability(kernels_, logits, verdict.sampled.token);
  }
  if (thinks && !sequence.constraint && !changes) {
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
  if (token == kNoToken) {
    return sequence.is_spoiled ? FinishReason::kExpertLost : FinishReason::kNotNumbers;
  }
  if (sequence.cancelled) return FinishReason::kStop;
  const TokenRules& rules = *sequence.request.rules;
  const int place = sequence.num_generated() + before;
  const bool is_end = std::ranges::find(end_tokens_, token) != end_tokens_.end();
  const bool is_stop = std::ranges::find(rules.stop_tokens, token) != rules.stop_tokens.end();
  const bool ends_here = is_stop || (is_end && !sequence.request.ignore_eos);
  if (ends_here && place >= rules.num_forced()) return FinishReason::kStop;
  return place + 1 == sequence.request.max_tokens ? FinishReason::kLength
                                                  : FinishReason::kNotFinished;
}

}  // namespace wideep::engine
