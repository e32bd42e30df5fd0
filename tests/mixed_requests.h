// SPDX-License-Identifier: Apache-2.0
//
// For tests of faults: requests of every kind and interface, mixed, each with one right answer.
// What one client asks for must never reach another one's answer, whatever happens to the
// processes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace wideep::tests {

// With this template and `--tool-call-parser hermes` a model answers all of them.
extern const char* const kMixedTemplate;

struct MixedRequest {
  std::string kind;
  std::string path;
  nlohmann::json body;
  bool is_stored = false;  // a response that can be got afterwards
};
// The requests repeat their kinds: `index` and `index` + kMixedKinds differ in text, seed and
// length. with_routed_experts: the server has --enable-return-routed-experts.
inline constexpr int kMixedKinds = 17;
MixedRequest mixed_request(int index, int max_tokens, bool with_routed_experts = false);

// The same with so many words before each of its prompts; `index` decides which.
MixedRequest with_words_before(MixedRequest request, int index, int num_words);

// Without what differs between two replies to equal requests: identities, times, and how much of a
// prompt was cached.
nlohmann::json lasting(const nlohmann::json& value);

}  // namespace wideep::tests
