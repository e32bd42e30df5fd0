// SPDX-License-Identifier: Apache-2.0
//
// Each rank that computes a sequence keeps its part of a page in whole blocks of the host tier.
#include "run/shared_host_cache.h"

#include <algorithm>

#include "base/try.h"
#include "run/page_geometry.h"
#include "run/prompt_places.h"
#include "store/host_index.h"
#include "store/record.h"

namespace wideep::run {
namespace {

constexpr uint64_t kMaxShare = 5;  // of the memory that can be used: one part in so many

// With its state, as if each page had one.
uint64_t kept_bytes_of_page(const RunPlan& plan, const PageGeometry& geometry) {
  const auto parts = static_cast<uint64_t>(plan.mapping.sizes().pp) *
                     (plan.joint ? static_cast<uint64_t>(plan.mapping.sizes().tp) : 1);
  const uint64_t states = geometry.state_bytes > 0 ? 1 : 0;
  return geometry.page_bytes + geometry.state_bytes +
         (1 + states) * parts * store::HostIndex::kBlockBytes;
}

// Of different sequences, in the caches of this node's ranks.
uint64_t pages_of_node(const RunOptions& options, const RunPlan& plan) {
  const auto ranks_here =
      static_cast<uint64_t>(plan.ranks_of_nodes[static_cast<size_t>(this_node(options))]);
  const auto owners = static_cast<uint64_t>(plan.num_request_owners()) *
                      static_cast<uint64_t>(plan.mapping.sizes().cp);
  const auto all = static_cast<uint64_t>(plan.limits.max_pages) * owners;
  return std::max<uint64_t>(all * ranks_here / static_cast<uint64_t>(plan.mapping.world_size()), 1);
}

}  // namespace

Result<uint64_t> shared_host_cache(const RunOptions& options, const RunPlan& plan,
                                   const base::Machine& machine) {
  WIDEEP_TRY_ASSIGN(const PageGeometry geometry, page_geometry(plan, /*rank=*/0, ""));
  const uint64_t page = kept_bytes_of_page(plan, geometry);
  const auto& transceiver = options.parallel.cache_transceiver_config;
  if (transceiver && transceiver->max_tokens_in_buffer) {
    const auto tokens = static_cast<uint64_t>(*transceiver->max_tokens_in_buffer);
    const uint64_t pages = (tokens + store::kPageTokens - 1) / store::kPageTokens;
    return std::max(pages, kFewestPages) * page;
  }
  const uint64_t wanted = std::max(pages_of_node(options, plan), kFewestPages) * page;
  return std::min(wanted, machine.usable_memory_bytes() / kMaxShare);
}

}  // namespace wideep::run
