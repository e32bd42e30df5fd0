// SPDX-License-Identifier: Apache-2.0
#include "group/signal_queue.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>

namespace wideep::transport {
namespace {

// Opens the terminal that controls this process, wherever its input and output go.
bool has_terminal() {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

}  // namespace

SignalQueue::SignalQueue(HangUp hang_up)
    : takes_hang_up_(hang_up == HangUp::kTaken && !has_terminal()) {
  // If SIGCHLD is ignored (inherited from the process that started this one), the kernel reaps
  // children itself and their exit codes are lost.
  struct sigaction child{};
  child.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &child, &child_before_);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  if (takes_hang_up_) sigaddset(&set, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

void SignalQueue::keep_hang_up() {
  if (has_terminal()) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

void SignalQueue::ignore_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_IGN);
}

SignalQueue::~SignalQueue() {
  ::close(fd_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
}

int SignalQueue::next() const {
  signalfd_siginfo info{};
  return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void SignalQueue::become_child(pid_t parent) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before prctl took effect
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  if (takes_hang_up_) ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);  // a write to a process that has ended fails instead
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace wideep::transport
