// SPDX-License-Identifier: Apache-2.0
#include "engine/logit_changes.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace wideep::engine {
namespace {

using Tokens = std::span<const int32_t>;

// How often each token comes in parts of a text.
class TokenCounts {
 public:
  explicit TokenCounts(size_t vocab) : counts_(vocab) {}

  void add(Tokens text) {
    for (const int32_t token : text) {
      if (knows(token)) ++counts_[static_cast<size_t>(token)];
    }
  }

  // Calls each(token, count) once for every token of the text that has been added and not been
  // taken: a walk over the text instead of over the vocabulary, which is longer.
  template <typename Each>
  void take(Tokens text, Each each) {
    for (const int32_t token : text) {
      if (!knows(token)) continue;
      const uint32_t count = std::exchange(counts_[static_cast<size_t>(token)], 0);
      if (count > 0) each(static_cast<size_t>(token), count);
    }
  }

 private:
  bool knows(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < counts_.size();
  }

  std::vector<uint32_t> counts_;  // [vocab]
};

void repeat_less(float penalty, std::initializer_list<Tokens> text, std::span<float> logits) {
  TokenCounts counts(logits.size());
  for (const Tokens part : text) counts.add(part);
  for (const Tokens part : text) {
    counts.take(part, [&](size_t token, uint32_t) {
      float& logit = logits[token];
      logit = logit > 0.0f ? logit / penalty : logit * penalty;
    });
  }
}

void subtract_penalties(const SamplingParams& params, std::initializer_list<Tokens> answer,
                        std::span<float> logits) {
  TokenCounts counts(logits.size());
  for (const Tokens part : answer) counts.add(part);
  for (const Tokens part : answer) {
    counts.take(part, [&](size_t token, uint32_t count) {
      logits[token] -= params.frequency_penalty * static_cast<float>(count);
      logits[token] -= params.presence_penalty;
    });
  }
}

}  // namespace

bool changes_logits(const Request& request) {
  const SamplingParams& params = request.sampling;
  return !request.bias.empty() || request.rules->change_logits() ||
         params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

void change_logits(const Request& request, std::span<const int> end_tokens, Tokens answer,
                   Tokens drafts, std::span<float> logits) {
  for (const TokenBias& each : request.bias) {
    const auto token = static_cast<size_t>(each.token);
    if (each.token >= 0 && token < logits.size()) logits[token] += each.bias;
  }
  const SamplingParams& params = request.sampling;
  if (params.repetition_penalty != 1.0f) {
    repeat_less(params.repetition_penalty, {request.prompt.ids(), answer, drafts}, logits);
  }
  if (params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f) {
    const size_t forced = std::min(request.rules->forced.size(), answer.size());
    subtract_penalties(params, {answer.subspan(forced), drafts}, logits);
  }
  if (!request.rules->change_logits()) return;
  std::vector<int32_t> all(answer.begin(), answer.end());
  all.insert(all.end(), drafts.begin(), drafts.end());
  apply_rules(*request.rules, end_tokens, all, logits);
}

}  // namespace wideep::engine
