// SPDX-License-Identifier: Apache-2.0
//
// What a run is, and what it costs, in words.
#pragma once

#include <string>

#include "engine/run_setup.h"

namespace wideep::engine {

// Lines: model, ranks, memory, how rows travel, what is balanced. Before anything large is
// allocated.
std::string plan_text(const RunSetup& setup);

// Checkpoint bytes that loading will read: dense once; each slot's expert, or with a host pool each
// expert once. 0: weights are made up.
uint64_t bytes_to_load(const RunSetup& setup);

}  // namespace wideep::engine
