// SPDX-License-Identifier: Apache-2.0
//
// How much memory of a node keeps pages of prompts for other servers, where nobody has said how
// much (RunOptions::host_cache_bytes is 0).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "run/run_options.h"
#include "run/run_plan.h"
#include "wideep/status.h"

namespace wideep::run {

// Bytes: room for cache_transceiver_config.max_tokens_in_buffer tokens; without it for as many as
// the KV caches of this node's ranks have, but at most a fifth of the memory that can be used. The
// former are the same on all nodes. plan: without a host cache. Errors: as page_geometry().
Result<uint64_t> shared_host_cache(const RunOptions& options, const RunPlan& plan,
                                   const base::Machine& machine);

}  // namespace wideep::run
