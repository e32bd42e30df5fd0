// SPDX-License-Identifier: Apache-2.0
#include "run/cache_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/byte_size.h"
#include "model/kv_layout.h"
#include "model/model_division.h"
#include "run/layouts.h"

namespace wideep::run {

uint64_t page_bytes_of_rank(const ModelFacts& model, const parallel::ParallelConfig& parallel) {
  const Dtype dtype = cache_dtype(parallel.kv_cache_config.dtype, model.forms.experts.format);
  const int parts = parallel.shares_batches() ? parallel.sizes.tp : 1;
  uint64_t bytes = 0;
  for (int stage = 0; stage < parallel.sizes.pp; ++stage) {
    const parallel::LayerRange layers = model::stage_layers(model.config, stage, parallel.sizes.pp);
    const model::KvLayout kv(model.config, dtype, layers, parts);
    bytes = std::max(bytes, uint64_t{kv.page_bytes()});
  }
  return bytes;
}

std::string memory_to_give(uint64_t bytes) {
  constexpr uint64_t kMib = uint64_t{1} << 20, kKib = 1024;
  constexpr uint64_t kFewMib = 16;  // below, a MiB more or less would be much
  const bool in_mib = bytes >= kFewMib * kMib;
  const uint64_t unit = in_mib ? kMib : kKib;
  return fmt::format("{}{}", bytes / unit + (bytes % unit > 0 ? 1 : 0), in_mib ? "M" : "K");
}

Result<int> pages_in_memory(const ModelFacts& model, const RunOptions& options, int min_pages,
                            int min_tokens) {
  constexpr uint64_t kMaxPages = std::numeric_limits<int>::max() / kernels::kPageTokens;
  const uint64_t page_bytes = page_bytes_of_rank(model, options.parallel);
  if (page_bytes == 0) {
    return invalid_input(
        "--kv-cache-memory: this model has states and no keys and values: leave it out");
  }
  const uint64_t pages = std::min(*options.cache_bytes / page_bytes, kMaxPages);
  if (pages >= static_cast<uint64_t>(min_pages)) return static_cast<int>(pages);
  const std::string shorter =
      pages > 0 ? fmt::format(", or --context {}", pages * kernels::kPageTokens) : "";
  return invalid_input(fmt::format(
      "--kv-cache-memory: expected at least {}, for a sequence of {} tokens on a rank{}, found {}",
      memory_to_give(static_cast<uint64_t>(min_pages) * page_bytes), min_tokens, shorter,
      base::byte_size(*options.cache_bytes)));
}

}  // namespace wideep::run
