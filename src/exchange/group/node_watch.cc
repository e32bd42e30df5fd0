// SPDX-License-Identifier: Apache-2.0
//
// One poll for signals, for the end of other ranks of the node, and for the thread's own end. It
// is a thread because the rank computes meanwhile: a peer's death then ends a wait at once instead
// of at its deadline. A group that has failed gets some seconds to end by itself; after them the
// process is ended, since it may be inside a call that never returns.
#include "group/node_watch.h"

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

// Time for the current iteration after a stop signal, as with forked ranks (rank_processes.cc).
// Shorter than the time after which launchers kill their processes: mpirun waits one second.
constexpr std::chrono::milliseconds kGrace{700};
// How often failures and deadlines are checked; signals and ended peers are noticed at once.
constexpr std::chrono::milliseconds kCheckInterval{100};
// Time for a rank to end by itself after the group has failed. It may not, for example inside MPI.
constexpr std::chrono::milliseconds kExitGrace{5'000};

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
    // Not those that have ended: poll would return at once, again and again.
    for (const NodeSockets::Peer& peer : sockets_.peers()) {
      if (!end_at && !NodeSockets::has_announced_end(peer))
        fds.push_back({peer.socket, POLLRDHUP, 0});
    }
    ::poll(fds.data(), fds.size(), static_cast<int>(kCheckInterval.count()));
    if (fds[0].revents != 0) return;
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      handle_stop_signal(static_cast<int>(info.ssi_signo));
    }
    check_peers();
    if (take_overdue()) {
      memory_->fail(interrupted("interrupted before the current iteration ended"));
    }
    const auto now = Clock::now();
    const Status failure = memory_->failure();
    if (!failure.ok() && !end_at) end_at = now + kExitGrace;
    if (end_at && now >= *end_at) ::_exit(failure.exit_code());
  }
}

void NodeWatch::handle_stop_signal(int signal) {
  if (inbox_ != nullptr) return std::exchange(inbox_, nullptr)->put(StopSignal{signal});
  interrupted_ = true;  // before the request: a rank that stops because of it reads this
  memory_->control().stop_requested.store(1);
  end_within(kGrace);
}

void NodeWatch::end_within(std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  fail_at_ = std::min(fail_at_.value_or(Clock::time_point::max()), Clock::now() + grace);
}

// True once, after the deadline of end_within.
bool NodeWatch::take_overdue() {
  const std::lock_guard lock(mutex_);
  if (!fail_at_ || Clock::now() < *fail_at_) return false;
  fail_at_.reset();
  return true;
}

// The kernel closes a rank's sockets when the rank dies. That is noticed at once, long before a
// wait for the rank would reach its deadline.
void NodeWatch::check_peers() const {
  for (const NodeSockets::Peer& peer : sockets_.peers()) {
    pollfd ready{peer.socket, POLLRDHUP, 0};
    if (::poll(&ready, 1, 0) <= 0 || NodeSockets::has_announced_end(peer)) continue;
    memory_->fail(
        failed(fmt::format("rank {} (process {}) has ended unexpectedly", peer.rank, peer.pid)));
  }
}

}  // namespace wideep::transport
