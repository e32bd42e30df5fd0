// SPDX-License-Identifier: Apache-2.0
#include "chat_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace wideep::tools {

ChatSignals::ChatSignals() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCONT, SIGWINCH}) ::sigaddset(&taken, signal);
  ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
  fd_ = ::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
}

ChatSignals::~ChatSignals() {
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int ChatSignals::take() const {
  signalfd_siginfo info;
  const bool came = ::read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
  return came ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace wideep::tools
