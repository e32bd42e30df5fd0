// SPDX-License-Identifier: Apache-2.0
//
// One poll loop in the parent: signals, messages, deadlines. A rank counts as ended when its
// process is reaped and its pipe is read to the end, for messages may be left in it. Of a failure
// the first error counts, which the rank itself has recorded in shared memory; what its exit says
// is only used if there is none. Children close the read ends that they have inherited: while one
// is open, a write to a dead parent's pipe would block instead of failing.
#include "group/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "group/signal_queue.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterruptGrace{700};
constexpr std::chrono::milliseconds kTerminateGrace{10'000};
constexpr std::chrono::milliseconds kFailureGrace{2'000};
constexpr std::chrono::milliseconds kLastGrace{200};  // between failing the ranks and killing them

struct Rank {
  pid_t pid = -1;
  MessageReader pipe;
  bool alive = false;
};

// ---- in the rank ----

[[noreturn]] void run_rank(const std::shared_ptr<SharedMemory>& memory, int rank,
                           const GroupOptions& options, int pipe_fd, const RankBody& body) {
  const auto endpoint = make_endpoint(memory, rank, options.timeout, options.faults);
  MessagePipe pipe(pipe_fd);
  Status status;
  try {
    status = body(*endpoint, pipe);
  } catch (const std::exception& error) {
    status = failed(fmt::format("rank {}: {}", rank, error.what()));
  }
  if (!status.ok()) memory->fail(status);
  pipe.finish();
  // Not exit: the fork has copies of the parent's objects, whose destructors must run there only.
  ::_exit(status.exit_code());
}

// ---- in the parent ----

class Supervisor : public RunningRanks {
 public:
  Supervisor(std::shared_ptr<SharedMemory> memory, const GroupOptions& options)
      : signals_(options.reports_hang_up ? SignalQueue::HangUp::kTaken
                                         : SignalQueue::HangUp::kLeft),
        memory_(std::move(memory)),
        reports_stop_signals_(options.reports_stop_signals),
        ranks_(memory_->num_ranks()) {}

  ~Supervisor() override {
    kill_all();
    while (next()) {  // until all ranks are reaped
    }
  }

  Status fork_all(const GroupOptions& options, const RankBody& body);

  std::optional<RankEvent> next() override;
  Status result() override;
  SharedMemory& memory() override { return *memory_; }
  void end_within(std::chrono::milliseconds grace) override;

 private:
  Status fork_one(int index, const GroupOptions& options, const RankBody& body);
  bool finished() const;
  void wait_for_events();
  void handle_signals();
  void reap();
  void handle_stop_signal(int signal);
  void enforce_deadlines();
  void kill_all();

  SignalQueue signals_;
  std::shared_ptr<SharedMemory> memory_;
  bool reports_stop_signals_;  // the next one, at most
  std::vector<Rank> ranks_;
  std::deque<RankEvent> events_;  // not yet returned by next()
  bool interrupted_ = false;
  std::mutex mutex_;                          // guards fail_at_: any thread may call end_within
  std::optional<Clock::time_point> fail_at_;  // then fail the group
  std::optional<Clock::time_point> kill_at_;  // then kill the ranks that are left
};

Status Supervisor::fork_all(const GroupOptions& options, const RankBody& body) {
  std::fflush(nullptr);  // else each rank would print its copy of what is still buffered
  for (int index = 0; index < options.num_ranks; ++index) {
    if (Status status = fork_one(index, options, body); !status.ok()) {
      kill_all();
      return status;
    }
  }
  return {};
}

Status Supervisor::fork_one(int index, const GroupOptions& options, const RankBody& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return failed(fmt::format("cannot fork rank {}: {}", index, std::strerror(errno)));
  }
  if (pid == 0) {
    signals_.become_child(parent);
    // Inherited read ends of other ranks' pipes. While they are open, a write there would block
    // after the parent's death instead of failing.
    for (Rank& earlier : ranks_) earlier.pipe.close();
    ::close(ends[0]);
    run_rank(memory_, index, options, ends[1], body);
  }
  ::close(ends[1]);
  ranks_[index].pid = pid;
  ranks_[index].pipe = MessageReader(ends[0]);
  ranks_[index].alive = true;
  return {};
}

std::optional<RankEvent> Supervisor::next() {
  while (events_.empty() && !finished()) {
    wait_for_events();
    handle_signals();
    for (int index = 0; index < static_cast<int>(ranks_.size()); ++index) {
      ranks_[index].pipe.read(
          [&](std::string message) { events_.push_back(RankMessage{index, std::move(message)}); });
    }
    enforce_deadlines();
  }
  if (events_.empty()) return std::nullopt;
  std::optional<RankEvent> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Status Supervisor::result() {
  if (Status failure = memory_->failure(); !failure.ok()) return failure;
  return interrupted_ ? interrupted("interrupted") : Status();
}

// A rank's pipe may hold messages after the rank has ended, so both have to be at their end.
bool Supervisor::finished() const {
  for (const Rank& rank : ranks_) {
    if (rank.alive || rank.pipe.is_open()) return false;
  }
  return true;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    if (rank.pipe.is_open()) fds.push_back({rank.pipe.fd(), POLLIN, 0});
  }
  ::poll(fds.data(), fds.size(), 50);
}

void Supervisor::handle_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      reap();
    } else if (signal == SIGHUP) {
      events_.push_back(DrainSignal{});
    } else {
      handle_stop_signal(signal);
    }
  }
}

void Supervisor::reap() {
  for (size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    int how = 0;
    // Each rank by its id, not any child: the caller may have other children.
    if (!rank.alive || ::waitpid(rank.pid, &how, WNOHANG) != rank.pid) continue;
    rank.alive = false;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
    // A rank that failed by itself has recorded its error already. fail() keeps the first error.
    memory_->fail(failed(WIFSIGNALED(how)
                             ? fmt::format("rank {} (process {}) was ended by signal {} ({})",
                                           index, rank.pid, WTERMSIG(how), strsignal(WTERMSIG(how)))
                             : fmt::format("rank {} (process {}) ended with exit code {}", index,
                                           rank.pid, WEXITSTATUS(how))));
    if (!kill_at_) kill_at_ = Clock::now() + kFailureGrace;
  }
}

void Supervisor::handle_stop_signal(int signal) {
  if (std::exchange(reports_stop_signals_, false)) {
    events_.push_back(StopSignal{signal});
    return;
  }
  memory_->control().stop_requested.store(1);
  interrupted_ = true;
  end_within(signal == SIGTERM ? kTerminateGrace : kInterruptGrace);
}

// The earlier deadline counts: a second signal must not extend the grace period. (`timeout` sends
// SIGTERM twice: to its child and to the process group.)
void Supervisor::end_within(std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  fail_at_ = std::min(fail_at_.value_or(Clock::time_point::max()), Clock::now() + grace);
}

void Supervisor::enforce_deadlines() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (fail_at_ && now >= *fail_at_) {
    memory_->fail(interrupted("interrupted before the current iteration ended"));
    fail_at_.reset();
    kill_at_ = now + kLastGrace;
  }
  if (kill_at_ && now >= *kill_at_) kill_all();
}

void Supervisor::kill_all() {
  for (Rank& rank : ranks_) {
    if (rank.alive) ::kill(rank.pid, SIGKILL);
  }
}

}  // namespace

Result<std::unique_ptr<RunningRanks>> start_rank_processes(const GroupOptions& options,
                                                           const RankBody& body) {
  WIDEEP_TRY_ASSIGN(auto memory, SharedMemory::create(options.num_ranks, options.segment_bytes));
  auto supervisor = std::make_unique<Supervisor>(std::move(memory), options);
  WIDEEP_TRY(supervisor->fork_all(options, body));
  return std::unique_ptr<RunningRanks>(std::move(supervisor));
}

Status run_rank_processes(const GroupOptions& options, const RankBody& body,
                          const std::function<void(int, std::string_view)>& on_message) {
  WIDEEP_TRY_ASSIGN(const auto ranks, start_rank_processes(options, body));
  return run_to_end(*ranks, on_message);
}

}  // namespace wideep::transport
