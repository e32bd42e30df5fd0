// SPDX-License-Identifier: Apache-2.0
//
// The keeper's loop: events (signals, notes) change the Membership; then step() does what follows
// from it.
#include "transport/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "transport/signal_queue.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestSleep{1'000};
// A stopped rank may be continued at once, for example by a debugger that attaches.
constexpr milliseconds kStoppedPatience{200};
constexpr milliseconds kLastGrace{200};  // between failing the ranks and killing them
// A rank that dies again and again before it joins is started ever more seldom.
constexpr milliseconds kFirstRestartPause{50};
constexpr milliseconds kLongestRestartPause{30'000};
// A front that dies of itself so often in a row, each time so soon, is not forked again.
constexpr int kMostYoungFronts = 5;
constexpr milliseconds kYoungFront{3'000};
constexpr milliseconds kAcceptPause{100};          // without free descriptors
constexpr std::chrono::minutes kAcceptWarning{1};  // at most one warning about it in this time

// The clients for which a front has descriptors, too: one that it cannot receive would be lost. A
// connection takes two, and fronts need some for pipes to ranks and for files.
size_t most_clients(int num_ranks) {
  constexpr rlim_t kOthers = 64, kOfRank = 8, kOfClient = 2;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t others = kOthers + kOfRank * static_cast<rlim_t>(num_ranks);
  return static_cast<size_t>(
      std::max<rlim_t>(files.rlim_cur > others ? (files.rlim_cur - others) / kOfClient : 0, 1));
}

// ---- in a rank ----

// Sends to the front that there is now. Between epochs, when nothing else runs in the rank, it
// changes to another one.
class FrontMessenger : public Messenger {
 public:
  explicit FrontMessenger(int fd) { change(fd); }
  ~FrontMessenger() override { close(); }
  void change(int fd) {
    close();
    fd_ = fd;
    pipe_ = std::make_unique<MessagePipe>(fd);
  }
  Status send(std::string_view message) const override { return heard(pipe_->send(message)); }
  Status send_with_next(std::string_view message) const override {
    return heard(pipe_->send_with_next(message));
  }

 private:
  // Without a front nobody listens; the keeper will say where to go on.
  static Status heard(const Status&) { return {}; }
  void close() {
    if (pipe_ == nullptr) return;
    pipe_->finish();
    pipe_.reset();
    ::close(fd_);
  }
  std::unique_ptr<MessagePipe> pipe_;
  int fd_ = -1;
};

class KeptSeat : public Seat {
 public:
  KeptSeat(std::shared_ptr<SharedMemory> memory, int rank, const GroupOptions& options,
           const NoteSocket& keeper, int commands, FrontMessenger& messenger)
      : memory_(std::move(memory)),
        rank_(rank),
        options_(options),
        keeper_(keeper),
        commands_(commands),
        messenger_(messenger),
        comes_late_(memory_->control().epoch.load() > 0) {}

  int rank() const override { return rank_; }
  const Messenger& messenger() const override { return messenger_; }
  int commands() const override { return commands_; }
  bool may_change() const override { return true; }
  bool comes_late() const override { return comes_late_; }
  Endpoint& world() override { return *world_; }

  Result<std::optional<Members>> join() override {
    world_.reset();
    FaultDrill::pass(epoch_ == 0 ? FaultDrill::Step::kLoaded : FaultDrill::Step::kLeaving);
    Note note{.kind = epoch_ == 0 ? Note::Kind::kReady : Note::Kind::kLeft,
              .epoch = epoch_,
              .rank = rank_};
    const bool sent = keeper_.send(note);
    std::array<int, 2> fds;
    if (!sent || keeper_.receive(&note, true, &fds) != NoteSocket::Got::kNote) {
      return failed("the process that keeps the ranks has ended");
    }
    if (note.kind == Note::Kind::kEnd) return std::optional<Members>();
    if (note.kind == Note::Kind::kFailed) return note.status();
    epoch_ = note.epoch;
    world_ = make_endpoint(memory_, rank_, options_.timeout, options_.faults);
    Members members = note.members();
    members.has_new_front = fds[0] != NoteSocket::kNone;
    if (members.has_new_front) {
      ::close(std::exchange(commands_, fds[0]));
      messenger_.change(fds[1]);
    }
    FaultDrill::pass(FaultDrill::Step::kJoined);
    return std::optional(std::move(members));
  }

  bool has_lost(const Status& ended) const override {
    return memory_->control().broken_epoch.load() == epoch_ ||
           ended.code() == StatusCode::kDeadlineExceeded;
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  const GroupOptions& options_;
  const NoteSocket& keeper_;
  int commands_;
  FrontMessenger& messenger_;
  bool comes_late_;
  std::unique_ptr<Endpoint> world_;
  uint32_t epoch_ = 0;  // 0: has not joined yet
};

// ---- in the keeper ----

struct RankProcess {
  pid_t pid = -1;  // −1: there is none
  NoteSocket notes;
  std::optional<Clock::time_point> stopped_at;
  bool asked_to_end = false;
  bool has_joined = false;
  int early_deaths = 0;  // in a row, before it has joined
  Clock::time_point not_before;
  // To be sent with its next members: its ends of the pipes to a new front.
  std::array<int, 2> new_pipes = {NoteSocket::kNone, NoteSocket::kNone};
};

class Keeper {
 public:
  Keeper(const KeeperOptions& options, const std::function<Status(Seat&)>& rank,
         const FrontBody& front, std::shared_ptr<SharedMemory> memory)
      : options_(options),
        rank_body_(rank),
        front_body_(front),
        memory_(std::move(memory)),
        membership_(options.group.num_ranks, options.wanted, options.least),
        ranks_(static_cast<size_t>(options.group.num_ranks)) {}
  ~Keeper();

  Status run();

 private:
  Status fork_rank(int rank, KeptRanks::Pipes* front_ends);
  Status fork_front(const std::map<int, KeptRanks::Pipes>& pipes);
  Status replace_front();
  void front_ended(int how);
  void close_inherited();
  [[noreturn]] void be_rank(int rank, NoteSocket notes, int commands, int messages);

  bool is_over() const;
  void wait_for_events() const;
  std::optional<Clock::time_point> next_deadline() const;
  void handle_signals();
  void reap();
  void rank_ended(int rank, int how);
  void take_notes();
  void take_note(int rank, const Note& note);
  void take_front_note(const Note& note);
  void take_connection_notes();
  void accept_clients();
  void pause_accepting(int error);
  void pass_on_clients();

  void step();
  void start_missing();
  void end_surplus();
  void change_epoch();
  void enforce_deadlines();
  void end_all(const Status& why);
  void kill_rank(int rank);
  void tell_front(const Note& note, std::array<int, 2> fds = {-1, -1});

  const KeeperOptions& options_;
  const std::function<Status(Seat&)>& rank_body_;
  const FrontBody& front_body_;
  SignalQueue signals_;
  std::shared_ptr<SharedMemory> memory_;
  Membership membership_;
  std::vector<RankProcess> ranks_;
  std::vector<std::string> rank_errors_ = std::vector<std::string>(ranks_.size());

  pid_t front_ = -1;
  NoteSocket front_notes_, connection_notes_;
  std::optional<Status> front_status_;
  int num_fronts_ = 0, young_fronts_ = 0;
  bool died_of_itself_ = false;  // the last front
  Clock::time_point front_since_;
  std::optional<Clock::time_point> front_stopped_at_;

  struct Client {
    int socket = -1, companion = -1;
    bool is_passed_on = false;
  };
  std::map<int64_t, Client> clients_;
  const size_t most_clients_ = most_clients(options_.group.num_ranks);
  int64_t next_client_ = 1;
  bool accepts_ = false;
  size_t waiting_clients_ = 0;  // not passed on yet
  Clock::time_point accept_after_;
  std::optional<Clock::time_point> warned_at_;  // that no client can be accepted

  Membership::State announced_ = Membership::State::kNone;  // to the ranks
  std::optional<Clock::time_point> leave_by_;               // the roll call
  bool ending_ = false;                                     // no rank is started any more
  bool told_end_ = false;
  bool had_stop_signal_ = false;
  std::optional<Status> failure_;             // why everything ends
  std::optional<Clock::time_point> fail_at_;  // then fail the ranks
  std::optional<Clock::time_point> kill_at_;  // then kill them
};

void close_fd(int& fd) {
  if (fd != NoteSocket::kNone) ::close(std::exchange(fd, NoteSocket::kNone));
}

Keeper::~Keeper() {
  for (auto& [id, client] : clients_) {
    close_fd(client.socket);
    close_fd(client.companion);
  }
  for (const RankProcess& rank : ranks_) {
    if (rank.pid > 0) ::kill(rank.pid, SIGKILL);
  }
  if (front_ > 0) ::kill(front_, SIGKILL);
  for (const RankProcess& rank : ranks_) {
    if (rank.pid > 0) ::waitpid(rank.pid, nullptr, 0);
  }
  if (front_ > 0) ::waitpid(front_, nullptr, 0);
}

// ---- processes ----

// In a process that was just forked: what belongs to the others.
void Keeper::close_inherited() {
  for (RankProcess& rank : ranks_) {
    rank.notes = NoteSocket();
    for (int& fd : rank.new_pipes) close_fd(fd);
  }
  front_notes_ = NoteSocket();
  connection_notes_ = NoteSocket();
}

void Keeper::be_rank(int rank, NoteSocket notes, int commands, int messages) {
  FaultDrill::begin(memory_->control().drill_steps);
  Status status;
  {
    FrontMessenger messenger(messages);
    KeptSeat seat(memory_, rank, options_.group, notes, commands, messenger);
    try {
      status = rank_body_(seat);
    } catch (const std::exception& error) {
      status = failed(fmt::format("rank {}: {}", rank, error.what()));
    }
  }
  if (!status.ok()) {
    Note note{.kind = Note::Kind::kFailed, .rank = rank};
    note.set_status(status);
    notes.send(note);
  }
  // Not exit: the fork has copies of the keeper's objects, whose destructors must run there only.
  ::_exit(status.exit_code());
}

// front_ends: what the front gets.
Status Keeper::fork_rank(int rank, KeptRanks::Pipes* front_ends) {
  const auto cannot = [&](const char* what) {
    return failed(fmt::format("cannot start rank {}: {}: {}", rank, what, std::strerror(errno)));
  };
  WIDEEP_TRY_ASSIGN(auto notes, NoteSocket::make_pair());
  int commands[2], messages[2];
  if (::pipe2(commands, O_CLOEXEC) != 0) return cannot("pipe");
  if (::pipe2(messages, O_CLOEXEC) != 0) {
    for (const int fd : commands) ::close(fd);
    return cannot("pipe");
  }
  std::fflush(nullptr);  // else the rank would print its copy of what is still buffered
  const pid_t keeper = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    signals_.become_child(keeper);
    ::prctl(PR_SET_NAME, fmt::format("wideep-rank-{}", rank).c_str());  // for lists of processes
    close_inherited();
    // A connection is closed when all its copies are.
    for (auto& [id, client] : clients_) {
      close_fd(client.socket);
      close_fd(client.companion);
    }
    notes.keeper = NoteSocket();
    ::close(commands[1]);
    ::close(messages[0]);
    be_rank(rank, std::move(notes.child), commands[0], messages[1]);
  }
  ::close(commands[0]);
  ::close(messages[1]);
  if (pid < 0) {
    ::close(commands[1]);
    ::close(messages[0]);
    return cannot("fork");
  }
  RankProcess& process = ranks_[static_cast<size_t>(rank)];
  process.pid = pid;
  process.notes = std::move(notes.keeper);
  process.stopped_at.reset();
  process.asked_to_end = false;
  process.has_joined = false;
  membership_.started(rank);
  *front_ends = {.commands = commands[1], .messages = messages[0]};
  return {};
}

Status Keeper::fork_front(const std::map<int, KeptRanks::Pipes>& pipes) {
  WIDEEP_TRY_ASSIGN(auto notes, NoteSocket::make_pair());
  WIDEEP_TRY_ASSIGN(auto connections, NoteSocket::make_pair());
  accepts_ = false;
  waiting_clients_ = 0;
  for (auto& [id, client] : clients_) client.is_passed_on = true;
  std::fflush(nullptr);
  const pid_t keeper = ::getpid();
  front_ = ::fork();
  if (front_ < 0) return failed(fmt::format("cannot start: fork: {}", std::strerror(errno)));
  if (front_ == 0) {
    signals_.become_child(keeper);
    ::prctl(PR_SET_NAME, "wideep-front");
    FaultDrill::begin(memory_->control().drill_steps);
    close_inherited();
    notes.keeper = NoteSocket();
    connections.keeper = NoteSocket();
    const NoteSocket own(::dup(notes.child.fd()));
    std::vector<HeldConnections::Held> held;
    for (const auto& [id, client] : clients_) held.push_back({id, client.socket, client.companion});
    Status status;
    try {
      status = front_body_(std::make_unique<KeptRanks>(
          memory_, std::move(notes.child), pipes,
          HeldConnections(std::move(connections.child), std::move(held), died_of_itself_),
          KeptRanks::Past{.num_fronts = num_fronts_, .wanted = membership_.wanted()}));
    } catch (const std::exception& error) {
      // Out of memory, or threads: a death, after which another front may do better. What it
      // returns would end everything.
      log::error("the serving process: {}", error.what());
      std::fflush(nullptr);
      ::_exit(1);
    }
    Note last{.kind = Note::Kind::kFailed};
    last.set_status(status);
    own.send(last);
    std::fflush(nullptr);
    ::_exit(0);
  }
  front_notes_ = std::move(notes.keeper);
  connection_notes_ = std::move(connections.keeper);
  front_since_ = Clock::now();
  // The front has its own copies now: a write to a rank that has ended fails there.
  for (const auto& [rank, each] : pipes) {
    ::close(each.commands);
    ::close(each.messages);
  }
  return {};
}

// All ranks get pipes to the new front, with their next members.
Status Keeper::replace_front() {
  ++num_fronts_;
  std::map<int, KeptRanks::Pipes> pipes;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankProcess& process = ranks_[rank];
    if (process.pid < 0) continue;
    int commands[2], messages[2];
    if (::pipe2(commands, O_CLOEXEC) != 0 || ::pipe2(messages, O_CLOEXEC) != 0) {
      return failed(fmt::format("pipe: {}", std::strerror(errno)));
    }
    for (int& fd : process.new_pipes) close_fd(fd);
    process.new_pipes = {commands[0], messages[1]};
    pipes[static_cast<int>(rank)] = {.commands = commands[1], .messages = messages[0]};
  }
  membership_.break_up();
  return fork_front(pipes);
}

void Keeper::kill_rank(int rank) {
  const pid_t pid = ranks_[static_cast<size_t>(rank)].pid;
  if (pid > 0) ::kill(pid, SIGKILL);
}

void Keeper::tell_front(const Note& note, std::array<int, 2> fds) {
  // A front that has ended is noticed when it is reaped.
  front_notes_.send(note, fds);
}

// ---- the loop ----

Status Keeper::run() {
  std::map<int, KeptRanks::Pipes> pipes;
  for (const int rank : membership_.missing()) WIDEEP_TRY(fork_rank(rank, &pipes[rank]));
  WIDEEP_TRY(fork_front(pipes));
  while (!is_over()) {
    wait_for_events();
    handle_signals();
    take_notes();
    take_connection_notes();
    accept_clients();
    step();
    enforce_deadlines();
  }
  if (front_status_ && !front_status_->ok()) return *front_status_;
  if (failure_) return *failure_;
  return front_status_.value_or(failed("the serving process has ended unexpectedly"));
}

bool Keeper::is_over() const {
  return front_ < 0 &&
         std::ranges::all_of(ranks_, [](const RankProcess& each) { return each.pid < 0; });
}

std::optional<Clock::time_point> Keeper::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](std::optional<Clock::time_point> at) {
    if (at) next = std::min(next.value_or(*at), *at);
  };
  for (const auto& at : {leave_by_, fail_at_, kill_at_}) consider(at);
  if (accept_after_ > Clock::now()) consider(accept_after_);
  for (const RankProcess& rank : ranks_) {
    if (rank.stopped_at) consider(*rank.stopped_at + kStoppedPatience);
  }
  if (front_stopped_at_) consider(*front_stopped_at_ + kStoppedPatience);
  if (!ending_) {
    for (const int rank : membership_.missing()) {
      consider(ranks_[static_cast<size_t>(rank)].not_before);
    }
  }
  return next;
}

void Keeper::wait_for_events() const {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  if (front_ > 0) {
    fds.push_back({front_notes_.fd(), POLLIN, 0});
    const short writable = waiting_clients_ > 0 ? POLLOUT : 0;
    fds.push_back({connection_notes_.fd(), static_cast<short>(POLLIN | writable), 0});
  }
  if (accepts_ && Clock::now() >= accept_after_) fds.push_back({options_.listener, POLLIN, 0});
  for (const RankProcess& rank : ranks_) {
    if (rank.pid > 0) fds.push_back({rank.notes.fd(), POLLIN, 0});
  }
  milliseconds patience = kLongestSleep;
  if (const auto at = next_deadline()) {
    patience = std::clamp(std::chrono::ceil<milliseconds>(*at - Clock::now()), milliseconds(0),
                          kLongestSleep);
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(patience.count()));
}

void Keeper::handle_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      reap();
    } else if (!std::exchange(had_stop_signal_, true)) {
      tell_front({.kind = Note::Kind::kStopSignal, .value = signal});
    } else {
      end_all(interrupted("interrupted before the current iteration ended"));
    }
  }
}

void Keeper::reap() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankProcess& process = ranks_[rank];
    int how = 0;
    if (process.pid < 0 ||
        ::waitpid(process.pid, &how, WNOHANG | WUNTRACED | WCONTINUED) != process.pid) {
      continue;
    }
    if (WIFSTOPPED(how)) {
      process.stopped_at = Clock::now();
    } else if (WIFCONTINUED(how)) {
      process.stopped_at.reset();
    } else {
      rank_ended(static_cast<int>(rank), how);
    }
  }
  int how = 0;
  if (front_ < 0 || ::waitpid(front_, &how, WNOHANG | WUNTRACED | WCONTINUED) != front_) return;
  if (WIFSTOPPED(how)) {
    front_stopped_at_ = Clock::now();
  } else if (WIFCONTINUED(how)) {
    front_stopped_at_.reset();
  } else {
    front_ended(how);
  }
}

void Keeper::front_ended(int how) {
  take_notes();  // its last ones
  take_connection_notes();
  front_ = -1;
  front_stopped_at_.reset();
  const std::string text =
      WIFSIGNALED(how)
          ? fmt::format("the serving process was ended by signal {} ({})", WTERMSIG(how),
                        strsignal(WTERMSIG(how)))
          : fmt::format("the serving process ended with exit code {}", WEXITSTATUS(how));
  if (!front_status_ && !ending_ && membership_.members().epoch > 0) {
    // Whoever kills it from outside may do so as often as they like.
    const bool was_killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
    const bool is_young = Clock::now() - front_since_ < kYoungFront;
    died_of_itself_ = !was_killed;
    if (!was_killed) young_fronts_ = is_young ? young_fronts_ + 1 : 0;
    if (young_fronts_ < kMostYoungFronts) {
      log::warn("{}; another one goes on with its requests", text);
      const Status replaced = replace_front();
      if (replaced.ok()) return;
      log::warn("{}", replaced.message());
    }
  }
  ending_ = true;
  if (!front_status_ && !failure_) failure_ = failed(text);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) kill_rank(static_cast<int>(rank));
}

void Keeper::rank_ended(int rank, int how) {
  RankProcess& process = ranks_[static_cast<size_t>(rank)];
  // What it has said last, for example its error.
  Note note;
  while (process.notes.receive(&note, false) == NoteSocket::Got::kNote) take_note(rank, note);
  std::string& error = rank_errors_[static_cast<size_t>(rank)];
  std::string text =
      WIFSIGNALED(how) ? fmt::format("rank {} (process {}) was ended by signal {} ({})", rank,
                                     process.pid, WTERMSIG(how), strsignal(WTERMSIG(how)))
      : error.empty()  ? fmt::format("rank {} (process {}) ended with exit code {}", rank,
                                     process.pid, WEXITSTATUS(how))
                       : fmt::format("rank {} (process {}) failed: {}", rank, process.pid, error);
  error.clear();
  const bool was_expected = process.asked_to_end || (WIFEXITED(how) && WEXITSTATUS(how) == 0 &&
                                                     memory_->control().stop_requested.load() != 0);
  process.early_deaths = process.has_joined ? 0 : process.early_deaths + 1;
  const int doublings = std::min(process.early_deaths, 10);
  process.not_before =
      Clock::now() + (process.early_deaths == 0
                          ? milliseconds(0)
                          : std::min(kFirstRestartPause * (1 << doublings), kLongestRestartPause));
  process.pid = -1;
  process.notes = NoteSocket();
  for (int& fd : process.new_pipes) close_fd(fd);
  process.stopped_at.reset();
  membership_.died(rank);
  if (was_expected) ending_ = ending_ || !process.asked_to_end;
  const bool was_killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
  Note died{.kind = Note::Kind::kRankDied,
            .rank = rank,
            .value = was_expected ? Note::kExpected
                     : was_killed ? Note::kKilled
                                  : Note::kOwnFault};
  died.set_text(text);
  tell_front(died);
  if (membership_.members().epoch == 0 && !ending_) end_all(failed(text));
}

void Keeper::take_notes() {
  Note note;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    while (ranks_[rank].pid > 0 &&
           ranks_[rank].notes.receive(&note, false) == NoteSocket::Got::kNote) {
      take_note(static_cast<int>(rank), note);
    }
  }
  while (front_notes_.fd() >= 0 && front_notes_.receive(&note, false) == NoteSocket::Got::kNote) {
    take_front_note(note);
  }
}

void Keeper::take_note(int rank, const Note& note) {
  switch (note.kind) {
    case Note::Kind::kReady:
      return membership_.ready(rank);
    case Note::Kind::kLeft:
      return membership_.left(rank, note.epoch);
    case Note::Kind::kFailed:
      rank_errors_[static_cast<size_t>(rank)] = note.text_view();
      return;
    default:
      return;
  }
}

void Keeper::take_front_note(const Note& note) {
  switch (note.kind) {
    case Note::Kind::kEndWithin: {
      // The earlier deadline counts: a second signal must not extend the grace period.
      const auto at = Clock::now() + milliseconds(note.value);
      fail_at_ = std::min(fail_at_.value_or(at), at);
      ending_ = true;
      return;
    }
    case Note::Kind::kWant:
      return membership_.want(static_cast<int>(note.value));
    case Note::Kind::kFailed:
      front_status_ = note.status();
      return;
    default:
      return;
  }
}

// ---- clients ----

void Keeper::take_connection_notes() {
  Note note;
  while (connection_notes_.fd() >= 0 &&
         connection_notes_.receive(&note, false) == NoteSocket::Got::kNote) {
    if (note.kind == Note::Kind::kAccept) accepts_ = options_.listener >= 0;
    if (note.kind != Note::Kind::kDrop) continue;
    const auto client = clients_.extract(note.value);
    if (client.empty()) continue;
    close_fd(client.mapped().socket);
    close_fd(client.mapped().companion);
  }
}

void Keeper::accept_clients() {
  if (waiting_clients_ > 0) pass_on_clients();
  while (accepts_ && Clock::now() >= accept_after_) {
    if (clients_.size() >= most_clients_) return pause_accepting(EMFILE);
    const int socket = ::accept4(options_.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      if (is_full) pause_accepting(errno);
      if (is_full || errno == EAGAIN || errno == EWOULDBLOCK) return;
      continue;  // a client that has left again
    }
    Client client{.socket = socket};
    if (options_.companion) {
      // Without a companion the client is served too; its connection just ends with the front.
      const Result<int> made = options_.companion(socket);
      client.companion = made.ok() ? *made : NoteSocket::kNone;
    }
    clients_[next_client_++] = client;
    ++waiting_clients_;
    pass_on_clients();
  }
}

// Clients that come now wait in the kernel's queue.
void Keeper::pause_accepting(int error) {
  const auto now = Clock::now();
  accept_after_ = now + kAcceptPause;
  if (warned_at_ && now < *warned_at_ + kAcceptWarning) return;
  warned_at_ = now;
  log::warn("http: cannot accept a connection: {}; new ones wait (raise ulimit -n)",
            std::strerror(error));
}

// In the order in which they came; a front that is busy gets them later.
void Keeper::pass_on_clients() {
  auto client = std::prev(clients_.end(),
                          static_cast<std::ptrdiff_t>(std::min(waiting_clients_, clients_.size())));
  for (; client != clients_.end(); ++client) {
    auto& [id, held] = *client;
    if (held.is_passed_on) continue;
    if (!connection_notes_.send({.kind = Note::Kind::kHeld, .value = id},
                                {held.socket, held.companion})) {
      return;
    }
    held.is_passed_on = true;
    --waiting_clients_;
  }
}

// ---- what follows from the members ----

void Keeper::step() {
  end_surplus();
  if (!ending_) start_missing();
  change_epoch();
  const bool none_left =
      std::ranges::all_of(ranks_, [](const RankProcess& each) { return each.pid < 0; });
  if (ending_ && none_left && !std::exchange(told_end_, true)) {
    if (failure_) {
      Note note{.kind = Note::Kind::kFailed};
      note.set_status(*failure_);
      tell_front(note);
    }
    tell_front({.kind = Note::Kind::kEnd});
  }
}

void Keeper::start_missing() {
  for (const int rank : membership_.missing()) {
    RankProcess& process = ranks_[static_cast<size_t>(rank)];
    if (Clock::now() < process.not_before) continue;
    KeptRanks::Pipes pipes;
    if (const Status status = fork_rank(rank, &pipes); !status.ok()) {
      log::warn("{}", status.message());
      process.not_before = Clock::now() + kLongestRestartPause;
      continue;
    }
    tell_front({.kind = Note::Kind::kRankStarted, .rank = rank}, {pipes.commands, pipes.messages});
    ::close(pipes.commands);
    ::close(pipes.messages);
  }
}

// While everything ends, ranks that have left their group are not needed any more either.
void Keeper::end_surplus() {
  std::vector<int> surplus = membership_.surplus();
  if (ending_) surplus = membership_.waiting();
  for (const int rank : surplus) {
    RankProcess& process = ranks_[static_cast<size_t>(rank)];
    // One that still starts gets its answer when it is ready.
    if (membership_.place(rank) != Membership::Place::kWaiting) continue;
    if (!std::exchange(process.asked_to_end, true)) process.notes.send({.kind = Note::Kind::kEnd});
  }
}

void Keeper::change_epoch() {
  using State = Membership::State;
  if (!ending_) membership_.close();
  if (membership_.state() == State::kClosing && announced_ == State::kIntact) {
    announced_ = State::kClosing;
    memory_->control().change_requested.store(1);
    leave_by_ = Clock::now() + options_.group.timeout;
  }
  if (membership_.state() == State::kBroken && announced_ != State::kBroken) {
    announced_ = State::kBroken;
    memory_->control().broken_epoch.store(membership_.members().epoch);
    memory_->fail(failed("a rank has ended"));
    leave_by_ = Clock::now() + options_.leave_timeout;
  }
  if (membership_.state() == State::kNone) {
    leave_by_.reset();
    announced_ = State::kNone;
  }
  if (ending_) return;
  const auto members = membership_.form();
  if (!members) return;
  memory_->clear();
  if (options_.before_epoch) options_.before_epoch();
  memory_->control().epoch.store(members->epoch);
  announced_ = State::kIntact;
  Note note{.kind = Note::Kind::kJoin};
  note.set_members(*members);
  for (const int rank : members->ranks) {
    RankProcess& process = ranks_[static_cast<size_t>(rank)];
    process.has_joined = true;
    process.notes.send(note, process.new_pipes);
    for (int& fd : process.new_pipes) close_fd(fd);
  }
}

void Keeper::enforce_deadlines() {
  const auto now = Clock::now();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& stopped_at = ranks_[rank].stopped_at;
    if (stopped_at && now >= *stopped_at + kStoppedPatience) kill_rank(static_cast<int>(rank));
  }
  if (front_stopped_at_ && now >= *front_stopped_at_ + kStoppedPatience) {
    front_stopped_at_.reset();
    ::kill(front_, SIGKILL);
  }
  if (leave_by_ && now >= *leave_by_) {
    leave_by_.reset();
    for (const int rank : membership_.inside()) kill_rank(rank);
  }
  if (fail_at_ && now >= *fail_at_) {
    fail_at_.reset();
    end_all(interrupted("interrupted before the current iteration ended"));
  }
  if (kill_at_ && now >= *kill_at_) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) kill_rank(static_cast<int>(rank));
  }
}

// Ranks get a moment to end by themselves.
void Keeper::end_all(const Status& why) {
  ending_ = true;
  if (!failure_) failure_ = why;
  memory_->control().broken_epoch.store(membership_.members().epoch);
  memory_->fail(why);
  kill_at_ = Clock::now() + kLastGrace;
}

}  // namespace

Status keep_ranks(const KeeperOptions& options, const std::function<Status(Seat&)>& rank,
                  const FrontBody& front) {
  WIDEEP_TRY(FaultDrill::prepare());
  WIDEEP_TRY_ASSIGN(auto memory,
                    SharedMemory::create(options.group.num_ranks, options.group.segment_bytes));
  return Keeper(options, rank, front, std::move(memory)).run();
}

}  // namespace wideep::transport
