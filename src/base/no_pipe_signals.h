// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <ctime>

namespace wideep::base {

// While it lives, writing to a connection that the other side has closed is an error of this
// thread's write, in libraries too, and does not end the process. Construct and destroy it on the
// same thread.
class NoPipeSignals {
 public:
  NoPipeSignals() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignals() {
    if (sigismember(&before_, SIGPIPE) != 0) return;
    // A signal that came meanwhile would be delivered as soon as it is no longer blocked.
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
