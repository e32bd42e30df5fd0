// SPDX-License-Identifier: Apache-2.0
//
// What a caller asks of the engine, and how a request stands.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kv_layout.h"

namespace wideep::engine {

struct SamplingParams {
  float temperature = 0.0f;       // 0: greedy
  int top_k = 0;                  // 0: all tokens
  float top_p = 1.0f;             // in (0, 1]
  int top_log_probabilities = 0;  // of how many likely tokens are told beside the sampled one's
  uint64_t seed = 0;  // with the request's draw and the step it fixes every random number
};

struct Request {
  int index = 0;                // the caller's number
  std::vector<int32_t> prompt;  // not empty
  int max_tokens = 0;           // to generate, at least 1
  SamplingParams sampling;
  int draw = 0;             // of requests with one seed: each draws other random numbers
  bool ignore_eos = false;  // generates to max_tokens whatever comes
};

// A request inside a rank's engine.
struct Sequence {
  Request request;
  int64_t arrival = 0;  // of requests in the order in which they came
  // Prompt, then what was generated; empty while it has never been admitted.
  std::vector<int32_t> tokens;
  int num_computed = 0;  // tokens whose keys and values are in the cache
  model::PageList pages;
  std::vector<int32_t> page_ids;  // [pages] in the PageCache
  uint64_t prefix = 0;            // of the last of them that is full: PageCache::Prefix
  int first_rank = 0;             // whose the first page is, of ranks that share sequences
  int cached_tokens = 0;          // of the prompt, that others had computed
  bool may_begin = false;         // nobody holds it back any more: engine/prompt_gate.h
  bool was_paused = false;
  bool lacks_pages = false;  // waits in this iteration until there are some
  bool cancelled = false;    // ends with the token that is under way

  int prompt_length() const { return static_cast<int>(request.prompt.size()); }
  int num_generated() const { return static_cast<int>(tokens.size()) - prompt_length(); }
  int num_to_compute() const { return static_cast<int>(tokens.size()) - num_computed; }
  // All tokens are computed, or on their way through a pipeline: the next is still to come.
  bool awaits_token() const { return num_to_compute() == 0; }
  // In chunks: a prompt, and after a pause what had been generated.
  bool in_prefill() const { return num_computed < prompt_length() || num_to_compute() > 1; }
};

}  // namespace wideep::engine
