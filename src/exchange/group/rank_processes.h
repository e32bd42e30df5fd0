// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes forked from this one, on one machine, without MPI.
//
// The parent does no model work. It forks the ranks, forwards their messages, and supervises them:
//
//  - The parent gets SIGINT or SIGTERM: it asks the ranks to stop after the current iteration
//    (control().stop_requested). If some still run after a grace period (SIGINT: 0.7 s, SIGTERM:
//    10 s), it fails the group, and then kills them. The ranks themselves ignore both signals.
//  - A rank dies or fails: the waits of all other ranks return its error at once. Ranks that have
//    not ended 2 s later are killed.
//  - The parent dies, for whatever reason: the kernel kills the ranks (PR_SET_PDEATHSIG).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "group/message_pipe.h"
#include "group/running_ranks.h"
#include "transport/rank_threads.h"

namespace wideep::transport {

// The main function of a rank.
using RankBody = std::function<Status(Endpoint&, const Messenger&)>;

// Forks the ranks; each runs `body`. REQUIRES: this process has only one thread; it may start more
// after this call. Errors (failed): the kernel refuses memory, a pipe or a process.
Result<std::unique_ptr<RunningRanks>> start_rank_processes(const GroupOptions& options,
                                                           const RankBody& body);

// Starts the ranks and waits for their end. Passes their messages to on_message(rank, message).
Status run_rank_processes(const GroupOptions& options, const RankBody& body,
                          const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
