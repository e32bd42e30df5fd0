// SPDX-License-Identifier: Apache-2.0
//
// A child closes what it has inherited first: a pipe or socket that it kept would never show the
// others its end. It leaves with _exit, for its copies of the keeper's objects must not be
// destroyed. What a rank has said is read before its death is told. New pipes of a rank wait here
// until its next members, since between epochs is the only time at which it changes to another
// front.
#include "group/rank_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "group/fault_drill.h"

namespace wideep::transport {
namespace {

// A stopped rank may be continued at once, for example by a debugger that attaches.
constexpr std::chrono::milliseconds kStoppedPatience{200};

void close_fd(int& fd) {
  if (fd != NoteSocket::kNone) ::close(std::exchange(fd, NoteSocket::kNone));
}

}  // namespace

RankHost::RankHost(Options options, const std::function<Status(Seat&)>& rank,
                   std::shared_ptr<SharedMemory> memory, const SignalQueue& signals)
    : options_(std::move(options)),
      body_(rank),
      memory_(std::move(memory)),
      signals_(signals),
      ranks_(static_cast<size_t>(options_.group.num_ranks)) {}

RankHost::~RankHost() {
  for (const Process& each : ranks_) {
    if (each.pid > 0) ::kill(each.pid, SIGKILL);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Process& process = ranks_[rank];
    for (int& fd : process.new_pipes) close_fd(fd);
    if (process.pid <= 0) continue;
    ::waitpid(process.pid, nullptr, 0);
    if (options_.after_death) options_.after_death(static_cast<int>(rank));
  }
}

void RankHost::forget() {
  for (Process& each : ranks_) {
    each.pid = -1;
    each.notes = NoteSocket();
    for (int& fd : each.new_pipes) close_fd(fd);
  }
}

// ---- a rank's process ----

void RankHost::be_rank(int rank, NoteSocket notes, int commands, int messages) {
  FaultDrill::begin(memory_->control().drill_steps);
  Status status;
  try {
    KeptSeat seat(memory_, rank, options_.group, options_.place, notes, commands, messages);
    status = seat.listen();
    if (status.ok()) status = body_(seat);
  } catch (const std::exception& error) {
    status = failed(fmt::format("rank {}: {}", rank, error.what()));
  }
  if (!status.ok()) {
    Note note{.kind = Note::Kind::kFailed, .rank = rank};
    note.set_status(status);
    notes.send(note);
  }
  // Not exit: the fork has copies of the keeper's objects, whose destructors must run there only.
  ::_exit(status.exit_code());
}

Status RankHost::start(int rank, int commands, int messages) {
  Result<NoteSocket::Pair> notes = NoteSocket::make_pair();
  std::fflush(nullptr);  // else the rank would print its copy of what is still buffered
  const pid_t keeper = ::getpid();
  const pid_t pid = notes.ok() ? ::fork() : -1;
  const int error = errno;
  if (pid == 0) {
    signals_.become_child(keeper);
    ::prctl(PR_SET_NAME, fmt::format("wideep-rank-{}", rank).c_str());  // for lists of processes
    forget();
    if (options_.close_inherited) options_.close_inherited();
    notes->keeper = NoteSocket();
    be_rank(rank, std::move(notes->child), commands, messages);
  }
  ::close(commands);
  ::close(messages);
  WIDEEP_TRY(notes.status());
  if (pid < 0) {
    return failed(fmt::format("cannot start rank {}: fork: {}", rank, std::strerror(error)));
  }
  Process& process = at(rank);
  process.pid = pid;
  process.notes = std::move(notes->keeper);
  process.stopped_at.reset();
  process.watch = {};
  process.waits_for_keeper = false;
  process.asked_to_end = false;
  process.hangs = false;
  process.error.clear();
  return {};
}

bool RankHost::is_empty() const {
  return std::ranges::all_of(ranks_, [](const Process& each) { return each.pid < 0; });
}

void RankHost::kill(int rank, bool hangs) {
  if (at(rank).pid <= 0) return;
  at(rank).hangs |= hangs;
  ::kill(at(rank).pid, SIGKILL);
}

void RankHost::ask_to_end(int rank) {
  Process& process = at(rank);
  if (process.pid > 0 && !std::exchange(process.asked_to_end, true)) {
    process.notes.send({.kind = Note::Kind::kEnd});
  }
}

void RankHost::set_new_pipes(int rank, int commands, int messages) {
  Process& process = at(rank);
  for (int& fd : process.new_pipes) close_fd(fd);
  process.new_pipes = {commands, messages};
  if (process.pid > 0) return;
  // The next process of the rank is started with pipes of its own.
  for (int& fd : process.new_pipes) close_fd(fd);
}

// ---- epochs ----

void RankHost::announce_closing() { memory_->control().change_requested.store(1); }

void RankHost::announce_loss(uint32_t epoch, const Status& why) {
  memory_->control().broken_epoch.store(epoch);
  memory_->fail_for_all(why);
}

void RankHost::begin_epoch(const Members& members, const std::vector<PeerAddress>& addresses) {
  memory_->clear();
  if (options_.before_epoch) options_.before_epoch();
  ControlPage& page = memory_->control();
  std::ranges::copy(addresses, page.addresses.begin());
  page.epoch.store(members.epoch);
  Note note{.kind = Note::Kind::kJoin};
  note.set_members(members);
  for (const int rank : members.ranks) {
    Process& process = at(rank);
    if (process.pid < 0) continue;  // on another node
    process.waits_for_keeper = false;
    process.watch = {};
    process.notes.send(note, process.new_pipes);
    for (int& fd : process.new_pipes) close_fd(fd);
  }
}

// ---- events ----

void RankHost::add_descriptors(std::vector<pollfd>* fds) const {
  for (const Process& each : ranks_) {
    if (each.pid > 0) fds->push_back({each.notes.fd(), POLLIN, 0});
  }
}

std::optional<RankHost::Clock::time_point> RankHost::next_deadline() const {
  std::optional<Clock::time_point> next;
  if (!is_empty()) next = next_look_;
  for (const Process& each : ranks_) {
    if (!each.stopped_at) continue;
    const auto at = *each.stopped_at + kStoppedPatience;
    next = std::min(next.value_or(at), at);
  }
  return next;
}

void RankHost::kill_hanging() {
  const auto now = Clock::now();
  for (const Process& each : ranks_) {
    if (each.stopped_at && now >= *each.stopped_at + kStoppedPatience) ::kill(each.pid, SIGKILL);
  }
  if (now < next_look_) return;
  next_look_ = now + RunWatch::kInterval;
  watch();
}

void RankHost::watch() {
  // One silence may be that of a machine with more work than cores.
  const auto max = std::max(2, static_cast<int>(options_.group.timeout / RunWatch::kInterval) + 1);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Process& each = ranks_[rank];
    if (each.pid <= 0 || each.waits_for_keeper || each.watch.look(each.pid) < max) continue;
    log::warn(
        "rank {} (process {}) has not run for {} s, as if a debugger held it or its disk did "
        "not answer; it is ended",
        rank, each.pid, max);
    each.watch = {};
    kill(static_cast<int>(rank), true);
  }
}

void RankHost::reap() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Process& process = ranks_[rank];
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
      ended(static_cast<int>(rank), how);
    }
  }
}

void RankHost::ended(int rank, int how) {
  take_notes(rank);  // what it has said last, for example its error
  Process& process = at(rank);
  Event event{.kind = Event::Kind::kDied, .rank = rank, .epoch = 0, .text = {}};
  const std::string who = fmt::format("rank {} (process {})", rank, process.pid);
  if (WIFSIGNALED(how)) {
    event.text =
        fmt::format("{} was ended by signal {} ({})", who, WTERMSIG(how), strsignal(WTERMSIG(how)));
    if (process.hangs) event.text = fmt::format("{} did not answer and was ended", who);
    event.how = WTERMSIG(how) == SIGKILL && !process.hangs ? Note::kKilled : Note::kOwnFault;
  } else {
    event.text = process.error.empty()
                     ? fmt::format("{} ended with exit code {}", who, WEXITSTATUS(how))
                     : fmt::format("{} failed: {}", who, process.error);
    event.how = WEXITSTATUS(how) == 0 ? Note::kDone : Note::kOwnFault;
  }
  if (process.asked_to_end) event.how = Note::kExpected;
  process.pid = -1;
  process.notes = NoteSocket();
  process.stopped_at.reset();
  for (int& fd : process.new_pipes) close_fd(fd);
  if (options_.after_death) options_.after_death(rank);
  events_.push_back(std::move(event));
}

void RankHost::take_notes(int rank) {
  Note note;
  while (at(rank).pid > 0 && at(rank).notes.receive(&note, false) == NoteSocket::Got::kNote) {
    take_note(rank, note);
  }
}

void RankHost::take_note(int rank, const Note& note) {
  switch (note.kind) {
    case Note::Kind::kReady:
      at(rank).waits_for_keeper = true;
      events_.push_back({.kind = Event::Kind::kReady,
                         .rank = rank,
                         .epoch = 0,
                         .text = std::string(note.text_view())});
      return;
    case Note::Kind::kLeft:
      at(rank).waits_for_keeper = true;
      events_.push_back({.kind = Event::Kind::kLeft,
                         .rank = rank,
                         .epoch = note.epoch,
                         .text = std::string(note.text_view()),
                         .cut_from = static_cast<int>(note.value)});
      return;
    case Note::Kind::kFailed:
      at(rank).error = note.text_view();
      return;
    default:
      return;
  }
}

std::optional<RankHost::Event> RankHost::next_event() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) take_notes(static_cast<int>(rank));
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace wideep::transport
