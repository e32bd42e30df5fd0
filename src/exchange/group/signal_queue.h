// SPDX-License-Identifier: Apache-2.0
//
// SIGINT, SIGTERM and SIGCHLD of a process that supervises others, through a descriptor; of a server
// also SIGHUP.
//
// Thread safety: one thread, before the process starts others.
#pragma once

#include <sys/types.h>

#include <csignal>

namespace wideep::transport {

// Blocks these signals while it lives and delivers them through fd() instead.
class SignalQueue {
 public:
  // kTaken: SIGHUP, too, if this process has no terminal. With one SIGHUP says that the terminal has
  // gone: then it does what it did before, which ends the process unless nohup has started it.
  enum class HangUp { kLeft, kTaken };
  explicit SignalQueue(HangUp hang_up = HangUp::kLeft);
  // Where queues that take SIGHUP come and go: between them it waits for the next one.
  static void keep_hang_up();
  // Where this process is about to end with its own exit code: SIGINT and SIGTERM have no effect any
  // more. Whoever stops all nodes at once may reach one that has just heard of the end.
  static void ignore_stop_signals();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }
  // The next pending signal, or 0.
  int next() const;

  // In a process that was just forked. A terminal's Ctrl-C, `timeout` and service managers signal
  // every process of the group, but only the supervisor decides when the others stop: the child
  // ignores SIGINT and SIGTERM, and SIGHUP where that is taken. It also dies with its parent.
  void become_child(pid_t parent) const;

 private:
  struct sigaction child_before_{};
  sigset_t before_{};
  bool takes_hang_up_ = false;
  int fd_ = -1;
};

}  // namespace wideep::transport
