// SPDX-License-Identifier: Apache-2.0
#include "engine/logit_changes.h"

#include <cstddef>
#include <vector>

namespace wideep::engine {
namespace {

// Which tokens have come.
class SeenTokens {
 public:
  explicit SeenTokens(size_t vocab) : bits_(vocab / 64 + 1) {}

  // Whether this is the first time.
  bool add(int32_t token) {
    uint64_t& word = bits_[static_cast<size_t>(token) / 64];
    const uint64_t bit = uint64_t{1} << (token % 64);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }

 private:
  std::vector<uint64_t> bits_;
};

}  // namespace

bool changes_logits(const Request& request) {
  const SamplingParams& params = request.sampling;
  return !request.bias.empty() || params.repetition_penalty != 1.0f ||
         params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f;
}

void change_logits(const Request& request, std::span<const int32_t> answer,
                   std::span<const int32_t> drafts, std::span<float> logits) {
  const SamplingParams& params = request.sampling;
  const auto is_known = [&](int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < logits.size();
  };
  for (const TokenBias& each : request.bias) {
    if (is_known(each.token)) logits[static_cast<size_t>(each.token)] += each.bias;
  }
  if (params.repetition_penalty != 1.0f) {
    SeenTokens seen(logits.size());
    for (const std::span<const int32_t> part :
         {std::span<const int32_t>(request.prompt.ids()), answer, drafts}) {
      for (const int32_t token : part) {
        if (!is_known(token) || !seen.add(token)) continue;
        float& logit = logits[static_cast<size_t>(token)];
        logit =
            logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      }
    }
  }
  if (params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f) return;
  SeenTokens seen(logits.size());
  for (const std::span<const int32_t> part : {answer, drafts}) {
    for (const int32_t token : part) {
      if (!is_known(token)) continue;
      float& logit = logits[static_cast<size_t>(token)];
      logit -= params.frequency_penalty;
      if (seen.add(token)) logit -= params.presence_penalty;
    }
  }
}

}  // namespace wideep::engine
