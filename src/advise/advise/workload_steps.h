// SPDX-License-Identifier: Apache-2.0
//
// What the iterations compute that a workload makes: of one batch, and with context parallelism on
// the busiest of the ranks that share it.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "advise/context_part.h"
#include "advise/workload.h"
#include "model/model_work.h"

namespace wideep::advise {

// The next token of each of `batch` requests, with drafts, in the middle of their answers; of all
// ranks that share them (busiest_generating() has the busiest one's part).
model::StepShape generating(int batch, int drafts, const Workload& workload);

// A chunk of prompts, in the middle of them.
model::StepShape chunk_of(int64_t chunk, const Workload& workload, const ContextDeal& deal);

// The last page of each of `count` prompts whose other pages are there: half a page of tokens, or
// all of a shorter prompt.
model::StepShape last_pages(int64_t count, const Workload& workload);

}  // namespace wideep::advise
