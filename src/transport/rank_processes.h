// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes forked from this one, on this machine, without MPI.
//
// The parent does no model work: it forks, passes on what the ranks say, and sees to their end.
//  - SIGINT or SIGTERM: ranks are asked to stop after the current iteration
//  (control().stop_requested);
//    those still running after a grace period (0.7 s; 10 s for SIGTERM) are made to fail and then
//    killed.
//  - a rank that dies or fails: the others' waits fail with its message at once; any that lingers
//  for
//    2 s is killed.
//  - the parent dies, however: the kernel kills the ranks (PR_SET_PDEATHSIG). Nothing is left
//  behind.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "transport/rank_threads.h"

namespace wideep::transport {

// A rank's way to tell the parent something: whole messages, in order. Not thread safe.
class MessagePipe {
 public:
  explicit MessagePipe(int fd) : fd_(fd) {}
  // Blocks while the parent is behind. Errors (failed): the parent is gone.
  Status send(std::string_view message) const;

 private:
  int fd_;
};

// Forks the ranks, calls body in each and on_message(rank, message) here, and returns when every
// rank has ended: ok, the group's first failure, or interrupted. REQUIRES: the caller has started
// no other thread.
Status run_rank_processes(const GroupOptions& options,
                          const std::function<Status(Endpoint&, const MessagePipe&)>& body,
                          const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
