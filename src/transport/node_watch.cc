// SPDX-License-Identifier: Apache-2.0
#include "transport/node_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

// As ranks of one parent have them (rank_processes.cc). Launchers kill what has not ended some time
// after SIGTERM: mpirun after one second.
constexpr std::chrono::milliseconds kGrace{700};
constexpr std::chrono::milliseconds kLook{100};
// A rank that has been made to fail and does not end, because it is inside MPI perhaps.
constexpr std::chrono::milliseconds kLinger{5'000};

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

NodeWatch::NodeWatch(std::shared_ptr<SharedMemory> memory, const NodeSockets& sockets,
                     MessageInbox* inbox)
    : memory_(std::move(memory)), sockets_(sockets), inbox_(inbox) {
  const sigset_t set = stop_signals();
  signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

NodeWatch::~NodeWatch() {
  ::eventfd_write(end_, 1);
  thread_.join();
  ::close(end_);
  ::close(signals_);
}

void NodeWatch::run() {
  std::optional<Clock::time_point> end_at;
  for (;;) {
    std::vector<pollfd> fds = {{end_, POLLIN, 0}, {signals_, POLLIN, 0}};
    for (const NodeSockets::Peer& peer : sockets_.peers())
      fds.push_back({peer.socket, POLLRDHUP, 0});
    ::poll(fds.data(), fds.size(), static_cast<int>(kLook.count()));
    if (fds[0].revents != 0) return;
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      take_stop_signal(static_cast<int>(info.ssi_signo));
    }
    look_at_peers();
    if (is_overdue()) {
      memory_->fail(interrupted("interrupted before the current iteration ended"));
    }
    const auto now = Clock::now();
    const Status failure = memory_->failure();
    if (!failure.ok() && !end_at) end_at = now + kLinger;
    if (end_at && now >= *end_at) ::_exit(failure.exit_code());
  }
}

void NodeWatch::take_stop_signal(int signal) {
  if (inbox_ != nullptr) return std::exchange(inbox_, nullptr)->put(StopSignal{signal});
  interrupted_ = true;
  memory_->control().stop_requested.store(1);
  end_within(kGrace);
}

void NodeWatch::end_within(std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  fail_at_ = std::min(fail_at_.value_or(Clock::time_point::max()), Clock::now() + grace);
}

// Once.
bool NodeWatch::is_overdue() {
  const std::lock_guard lock(mutex_);
  if (!fail_at_ || Clock::now() < *fail_at_) return false;
  fail_at_.reset();
  return true;
}

void NodeWatch::look_at_peers() const {
  for (const NodeSockets::Peer& peer : sockets_.peers()) {
    pollfd ready{peer.socket, POLLRDHUP, 0};
    if (::poll(&ready, 1, 0) <= 0 || NodeSockets::has_said_goodbye(peer)) continue;
    memory_->fail(
        failed(fmt::format("rank {} (process {}) has ended without a word", peer.rank, peer.pid)));
  }
}

}  // namespace wideep::transport
