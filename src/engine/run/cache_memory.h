// SPDX-License-Identifier: Apache-2.0
//
// From bytes that users give for the KV cache of a rank (RunOptions::cache_bytes) to pages.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "run/run_inputs.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::run {

// A page of kernels::kPageTokens tokens on the pipeline stage whose pages are the largest. 0: the
// model caches no keys and values.
uint64_t page_bytes_of_rank(const ModelFacts& model, const parallel::ParallelConfig& parallel);

// The pages in options.cache_bytes, which is set. min_pages: what one sequence of min_tokens needs.
// Errors (invalid input): they do not fit, with the size to give instead; there are no pages.
Result<int> pages_in_memory(const ModelFacts& model, const RunOptions& options, int min_pages,
                            int min_tokens);

// A value for --kv-cache-memory of at least so many bytes: "38M".
std::string memory_to_give(uint64_t bytes);

}  // namespace wideep::run
