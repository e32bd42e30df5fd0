// SPDX-License-Identifier: Apache-2.0
//
// What a caller asks of the engine, and how a request stands.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kv_layout.h"

namespace wideep::engine {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int top_k = 0;             // 0: all tokens
  float top_p = 1.0f;        // in (0, 1]
  uint64_t seed = 0;         // with the request's index and the step it fixes every random number
};

struct Request {
  int index = 0;                // the caller's number; also a part of the random numbers' seed
  std::vector<int32_t> prompt;  // not empty
  int max_tokens = 0;           // to generate, at least 1
  SamplingParams sampling;
};

// A request inside a rank's engine.
struct Sequence {
  Request request;
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int num_computed = 0;         // tokens whose keys and values are in the cache
  model::PageList pages;

  int prompt_length() const { return static_cast<int>(request.prompt.size()); }
  int num_generated() const { return static_cast<int>(tokens.size()) - prompt_length(); }
  bool in_prefill() const { return num_computed < prompt_length(); }
};

}  // namespace wideep::engine
