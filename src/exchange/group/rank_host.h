// SPDX-License-Identifier: Apache-2.0
//
// The ranks of one node as processes: forks them, watches them, passes on what they say, and does
// what a keeper decides (group/keeper.h, group/node_client.h).
//
// Thread safety: one thread, the only one of the process.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/kept_seat.h"
#include "group/notes.h"
#include "group/run_watch.h"
#include "group/signal_queue.h"
#include "transport/rank_threads.h"

namespace wideep::transport {

class RankHost {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    GroupOptions group;
    const NodePlace* place = nullptr;  // null: there is one node
    // Called before the members of an epoch are told, while no rank uses the memory that they
    // share: to clear what belongs to the epoch before.
    std::function<void()> before_epoch;
    // Called when a rank has died, before it is started again: to take back what it had.
    std::function<void(int rank)> after_death;
    // Called in a process that was just forked, to close what it must not keep.
    std::function<void()> close_inherited;
  };
  // References outlive this.
  RankHost(Options options, const std::function<Status(Seat&)>& rank,
           std::shared_ptr<SharedMemory> memory, const SignalQueue& signals);
  ~RankHost();  // kills those that are left, as if they had died
  RankHost(const RankHost&) = delete;
  RankHost& operator=(const RankHost&) = delete;

  // Forks the rank. Takes over its ends of the pipes. Errors (failed): the kernel refuses.
  Status start(int rank, int commands, int messages);
  bool is_running(int rank) const { return at(rank).pid > 0; }
  bool is_empty() const;
  // hangs: it did not do what it should: the fault is its own, or of a request that it computes.
  void kill(int rank, bool hangs = false);
  // REQUIRES: the rank has left its group, or waits for its first.
  void ask_to_end(int rank);
  // It gets them with its next members, instead of those before; nobody does if it has just died.
  // Takes them over.
  void set_new_pipes(int rank, int commands, int messages);

  // ---- epochs ----

  // The members leave after their iteration; at once, with this error.
  void announce_closing();
  void announce_loss(uint32_t epoch, const Status& why);
  // addresses: [ranks of the world]; empty: there is one node. REQUIRES: all have left.
  void begin_epoch(const Members& members, const std::vector<PeerAddress>& addresses);

  // ---- events ----

  struct Event {
    enum class Kind { kReady, kLeft, kDied } kind = Kind::kReady;
    int rank = 0;
    uint32_t epoch = 0;           // kLeft
    std::string text;             // kReady: where it listens; kLeft: why; kDied: how
    int cut_from = Link::kNone;   // kLeft
    int64_t how = Note::kKilled;  // kDied
  };
  void add_descriptors(std::vector<pollfd>* fds) const;
  std::optional<Clock::time_point> next_deadline() const;
  // After a SIGCHLD.
  void reap();
  // Kills ranks that were stopped a moment ago, and those that have not run for the group's
  // timeout, though they do not wait for their keeper.
  void kill_hanging();
  std::optional<Event> next_event();

  // In a process that was just forked and is no rank.
  void forget();

 private:
  struct Process {
    pid_t pid = -1;  // −1: there is none
    NoteSocket notes;
    std::optional<Clock::time_point> stopped_at;
    RunWatch watch;
    bool waits_for_keeper = false;
    bool asked_to_end = false;
    bool hangs = false;  // and was killed for it
    std::string error;   // with which it has said that it ends
    std::array<int, 2> new_pipes = {NoteSocket::kNone, NoteSocket::kNone};
  };
  Process& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Process& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  [[noreturn]] void be_rank(int rank, NoteSocket notes, int commands, int messages);
  void take_notes(int rank);
  void take_note(int rank, const Note& note);
  void ended(int rank, int how);
  void watch();

  Options options_;
  const std::function<Status(Seat&)>& body_;
  std::shared_ptr<SharedMemory> memory_;
  const SignalQueue& signals_;
  std::vector<Process> ranks_;
  std::deque<Event> events_;
  Clock::time_point next_look_ = Clock::now();
};

}  // namespace wideep::transport
