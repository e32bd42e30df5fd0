// SPDX-License-Identifier: Apache-2.0
//
// Drafters guess how a request's text goes on. The model verifies the guess in one step with other
// work, and keeps what it would have generated itself (engine/engine.cc): drafts change the speed,
// never the answer.
//
//   n-gram   TensorRT-LLM's: what followed the last few tokens before, in any request of this rank
//            or in this one alone (ngram_pool.h)
//   suffix   what followed the longest repeated end of the text, in this request or in the ends of
//            earlier ones (suffix_automaton.h)
//
// A long prompt is indexed over several steps, in which nothing is drafted for it.
//
// Deterministic: drafts depend on the calls alone, so ranks that compute the same requests draft
// alike without communication. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/speculation/ngram_pool.h"

namespace wideep::engine {

struct Draft {
  std::vector<int32_t> tokens;  // that may follow; often none
  int match = 0;                // tokens at the end of the text that have occurred before
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // more: the tokens of the request's text since the last call; all of them at the first. Drafts at
  // most `most` tokens.
  virtual Draft draft(int request, std::span<const int32_t> more, int max) = 0;
  // Soon draft() will be called for the request, with tokens of which this is the first: begins to
  // load what it reads. Called twice, `late` the second time, with other requests in between. In a
  // step of many requests most of the time would go into waiting for memory.
  virtual void expect(int /*request*/, int32_t /*token*/, bool /*late*/) const {}
  // The request has ended. No effect if nothing was drafted for it.
  virtual void end(int request) = 0;
  // Memory of pools and texts.
  virtual size_t bytes() const = 0;
};

// is_public: one pool for all requests, else one for each, of which the running ones share
// options.max_bytes. max_running: requests at the same time.
std::unique_ptr<Drafter> ngram_drafter(const NgramOptions& options, bool is_public,
                                       int max_running);
// max_bytes: of the automata over earlier texts. Those of running requests take about 100 bytes
// for each token of their texts beside that.
std::unique_ptr<Drafter> suffix_drafter(size_t max_bytes);

}  // namespace wideep::engine
