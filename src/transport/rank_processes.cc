// SPDX-License-Identifier: Apache-2.0
#include "transport/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
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

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterruptGrace{700};
constexpr std::chrono::milliseconds kTerminateGrace{10'000};
constexpr std::chrono::milliseconds kFailureGrace{2'000};
constexpr std::chrono::milliseconds kLastGrace{200};  // between failing the ranks and killing them

// A message on the pipe: its length in 4 bytes, then its bytes.
using Length = uint32_t;

struct Rank {
  pid_t pid = -1;
  int pipe = -1;  // read end; −1 after its end was read
  bool alive = false;
  std::string inbox;  // the first bytes of a message whose rest has not arrived
};

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// Blocks the handled signals while it lives and delivers them through a descriptor instead.
class SignalQueue {
 public:
  SignalQueue() {
    // If SIGCHLD is ignored (inherited from the process that started this one), the kernel reaps
    // children itself and their exit codes are lost.
    struct sigaction child{};
    child.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &child, &child_before_);
    const sigset_t set = handled_signals();
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~SignalQueue() {
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::sigaction(SIGCHLD, &child_before_, nullptr);
  }
  int fd() const { return fd_; }
  const sigset_t& mask_before() const { return before_; }
  // The next pending signal, or 0.
  int next() const {
    signalfd_siginfo info{};
    return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  struct sigaction child_before_{};
  sigset_t before_{};
  int fd_ = -1;
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
      : memory_(std::move(memory)),
        reports_stop_signals_(options.reports_stop_signals),
        ranks_(memory_->num_ranks()) {}

  ~Supervisor() override {
    kill_all();
    while (next()) {  // until all ranks are reaped
    }
    for (Rank& rank : ranks_) {
      if (rank.pipe >= 0) ::close(rank.pipe);
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
  void read_pipe(int index);
  void take_messages(int index);
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
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // the parent died before prctl took effect
    // A terminal's Ctrl-C, `timeout` and service managers signal every process of the group, but
    // only the parent decides when ranks stop.
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGPIPE, SIG_IGN);  // if the parent has ended, write() fails and send() reports it
    ::sigprocmask(SIG_SETMASK, &signals_.mask_before(), nullptr);
    // Inherited read ends of other ranks' pipes. While they are open, a write there would block
    // after the parent's death instead of failing.
    for (const Rank& earlier : ranks_) {
      if (earlier.pipe >= 0) ::close(earlier.pipe);
    }
    ::close(ends[0]);
    run_rank(memory_, index, options, ends[1], body);
  }
  ::close(ends[1]);
  ranks_[index].pid = pid;
  ranks_[index].pipe = ends[0];
  ranks_[index].alive = true;
  return {};
}

std::optional<RankEvent> Supervisor::next() {
  while (events_.empty() && !finished()) {
    wait_for_events();
    handle_signals();
    for (int index = 0; index < static_cast<int>(ranks_.size()); ++index) read_pipe(index);
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
    if (rank.alive || rank.pipe >= 0) return false;
  }
  return true;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    if (rank.pipe >= 0) fds.push_back({rank.pipe, POLLIN, 0});
  }
  ::poll(fds.data(), fds.size(), 50);
}

void Supervisor::handle_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      reap();
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

void Supervisor::read_pipe(int index) {
  Rank& rank = ranks_[index];
  pollfd ready{rank.pipe, POLLIN, 0};
  char buffer[64 * 1024];
  while (rank.pipe >= 0 && ::poll(&ready, 1, 0) > 0) {
    // The pipe is blocking; poll has shown that there are bytes, or the end.
    const ssize_t bytes = ::read(rank.pipe, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      ::close(rank.pipe);
      rank.pipe = -1;
      return;
    }
    rank.inbox.append(buffer, static_cast<size_t>(bytes));
    take_messages(index);
  }
}

// Moves whole messages from the rank's inbox to the events. A read may end within a message.
void Supervisor::take_messages(int index) {
  std::string& inbox = ranks_[index].inbox;
  size_t at = 0;
  for (Length length = 0; inbox.size() - at >= sizeof(length); at += sizeof(length) + length) {
    std::memcpy(&length, inbox.data() + at, sizeof(length));
    if (inbox.size() - at - sizeof(length) < length) break;
    events_.push_back(RankMessage{index, inbox.substr(at + sizeof(length), length)});
  }
  inbox.erase(0, at);
}

void Supervisor::kill_all() {
  for (Rank& rank : ranks_) {
    if (rank.alive) ::kill(rank.pid, SIGKILL);
  }
}

}  // namespace

MessagePipe::MessagePipe(int fd) : fd_(fd), writer_([this] { write_loop(); }) {}

MessagePipe::~MessagePipe() { finish(); }

Status MessagePipe::send(std::string_view message) const {
  WIDEEP_TRY(queue(message));
  changed_.notify_one();
  return {};
}

Status MessagePipe::send_with_next(std::string_view message) const { return queue(message); }

Status MessagePipe::queue(std::string_view message) const {
  const Length length = static_cast<Length>(message.size());
  std::lock_guard lock(mutex_);
  if (broken_) return failed("the parent process has ended");
  queued_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  queued_ += message;
  return {};
}

void MessagePipe::finish() {
  {
    std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_one();
  if (writer_.joinable()) writer_.join();
}

void MessagePipe::write_loop() {
  for (;;) {
    std::string bytes;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return finishing_ || !queued_.empty(); });
      if (queued_.empty()) return;
      bytes.swap(queued_);
    }
    // Without the lock: write() blocks while the pipe is full, and senders must not.
    if (write_whole(bytes)) continue;
    std::lock_guard lock(mutex_);
    broken_ = true;
    return;
  }
}

// write() may write less than asked for, or be interrupted by a signal.
bool MessagePipe::write_whole(const std::string& bytes) const {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(fd_, bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

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
