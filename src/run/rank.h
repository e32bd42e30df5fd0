// SPDX-License-Identifier: Apache-2.0
//
// One rank from start to end: it loads its experts, builds an engine as the plan prescribes, and
// runs it on the requests of its feed.
#pragma once

#include "run/run.h"
#include "transport/endpoint.h"
#include "transport/messenger.h"

namespace wideep::run {

// feed_fd: the pipe from which this rank reads commands (engine::RequestFeed); −1: it gets them
// over the bridge. world: connects all ranks. messenger: sends RankEvents to the process that
// started the ranks. Collective over all ranks. Errors: as weights::WeightLoader and
// engine::Engine::run.
Status run_rank(const Run& run, int feed_fd, transport::Endpoint& world,
                const transport::Messenger& messenger);

}  // namespace wideep::run
