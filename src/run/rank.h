// SPDX-License-Identifier: Apache-2.0
//
// What one rank does from its start to its end: it loads its experts, puts the parts of an engine
// together as the plan says, and runs it on the requests that its feed brings.
#pragma once

#include "run/run.h"
#include "transport/endpoint.h"
#include "transport/messenger.h"

namespace wideep::run {

// feed_fd: where this rank reads its commands (engine::RequestFeed); −1: over the bridge.
// Collective over all ranks. Errors: as weights::WeightLoader and engine::Engine::run.
Status run_rank(const Run& run, int feed_fd, transport::Endpoint& world,
                const transport::Messenger& messenger);

}  // namespace wideep::run
