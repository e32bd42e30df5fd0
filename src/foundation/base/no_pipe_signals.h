// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <ctime>

namespace wideep::base {

// Blocks SIGPIPE in the calling thread during its lifetime: a write to a connection that the peer
// has closed then fails with EPIPE, in libraries too, instead of ending the process. Construct and
// destroy it on the same thread.
class NoPipeSignals {
 public:
  NoPipeSignals() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignals() {
    if (sigismember(&before_, SIGPIPE) != 0) return;
    // A pending SIGPIPE would be delivered as soon as the signal is unblocked: take it first.
    const timespec at_once{};
    while (sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignals(const NoPipeSignals&) = delete;
  NoPipeSignals& operator=(const NoPipeSignals&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace wideep::base
