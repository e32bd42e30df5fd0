// SPDX-License-Identifier: Apache-2.0
//
// SIGINT, SIGTERM and SIGCHLD of a process that supervises others, through a descriptor.
//
// Thread safety: one thread, before the process starts others.
#pragma once

#include <sys/types.h>

#include <csignal>

namespace wideep::transport {

// Blocks the three signals while it lives and delivers them through fd() instead.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }
  // The next pending signal, or 0.
  int next() const;

  // In a process that was just forked. A terminal's Ctrl-C, `timeout` and service managers signal
  // every process of the group, but only the supervisor decides when the others stop: the child
  // ignores SIGINT and SIGTERM. It also dies with its parent.
  void become_child(pid_t parent) const;

 private:
  struct sigaction child_before_{};
  sigset_t before_{};
  int fd_ = -1;
};

}  // namespace wideep::transport
