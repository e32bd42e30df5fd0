// SPDX-License-Identifier: Apache-2.0
//
// What a step has yielded for a sequence, and its form on the way from the last stage of a pipeline
// to the others.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"

namespace wideep::engine {

struct Yield {
  std::vector<int32_t> tokens;  // at least one, the last of which may be kNoToken: it has failed
  std::vector<int32_t> drafts;  // that may follow

  // Those that are tokens.
  std::span<const int32_t> known() const {
    return std::span(tokens).first(tokens.size() - (tokens.back() == kNoToken ? 1 : 0));
  }
};

// How many words the yields of a step have at most.
int words_of_yields(int max_batch_size, int max_draft_len);
// For each sequence: the number of tokens, the tokens, the number of drafts, the drafts. words: is
// replaced.
void pack(std::span<const Yield> yields, std::vector<int32_t>* words);
// REQUIRES: words that pack() has written.
std::vector<Yield> unpack_yields(std::span<const int32_t> words);

}  // namespace wideep::engine
