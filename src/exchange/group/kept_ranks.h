// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a keeper (group/keeper.h), for the process that uses them: the front.
//
// Thread safety: as RunningRanks; want(), drains(), report(), stop() and end_within() from any
// thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "group/message_pipe.h"
#include "group/notes.h"
#include "group/running_ranks.h"

namespace wideep::transport {

// The connections of clients that the keeper accepts and holds, so that they outlive a front. Each
// has a companion: a descriptor of whatever the fronts keep with it (KeeperOptions::companion).
//
// Thread safety: one thread.
class HeldConnections {
 public:
  struct Held {
    int64_t id = 0;
    int socket = -1;
    int companion = -1;       // −1: there is none
    bool was_served = false;  // a front that has died may have read from it, and replied
    bool is_suspect = false;  // that died of itself, perhaps because of this one
  };
  HeldConnections() = default;
  // before: of a front that has died, the oldest first. are_suspect: it died of itself.
  HeldConnections(NoteSocket keeper, std::vector<Held> before, bool are_suspect)
      : keeper_(std::move(keeper)),
        before_(before.begin(), before.end()),
        are_suspect_(are_suspect) {}

  // Begins to accept clients.
  void accept() { keeper_.send_surely({.kind = Note::Kind::kAccept}); }
  int fd() const { return keeper_.fd(); }  // readable when there is a next one
  // The next connection, in the order in which clients came, which the caller owns; nullopt: none
  // now.
  std::optional<Held> next();
  // To be called when the connection is closed.
  void drop(int64_t id) { keeper_.send_surely({.kind = Note::Kind::kDrop, .value = id}); }

 private:
  NoteSocket keeper_;
  std::deque<Held> before_;
  bool are_suspect_ = false;
};

class KeptRanks : public RunningRanks {
 public:
  // Descriptors of a rank's pipes, owned by whoever holds them.
  struct Pipes {
    int commands = -1;  // the end to write
    int messages = -1;  // the end to read
  };

  // What a front has to know of the ones before it.
  struct Past {
    int num_fronts = 0;   // that have died
    int wanted = 0;       // ranks
    bool drains = false;  // takes no requests
  };
  // pipes: of the ranks that are started already.
  KeptRanks(std::shared_ptr<SharedMemory> memory, NoteSocket keeper,
            const std::map<int, Pipes>& pipes, HeldConnections connections, const Past& past);

  const Past& past() const { return past_; }
  HeldConnections& connections() { return connections_; }

  // Beside messages and signals: RankStarted, RankDied.
  std::optional<RankEvent> next() override;
  Status result() override { return ended_; }
  SharedMemory& memory() override { return *memory_; }
  void end_within(std::chrono::milliseconds grace) override;
  // Nothing is left to do. Until then ranks that die are replaced, and another front goes on.
  void stop();
  // Says that all that had to be seen of Ping has been seen. A keeper that gets no answer for the
  // group's timeout, at least front_patience, ends this process, and another one goes on.
  void answer(const Ping& ping);

  Status want(int num_ranks) override;
  // Whether requests are refused now: the fronts that follow do the same. Any thread. Errors
  // (failed): the keeper has ended.
  Status drains(bool now);
  // For the service manager: what this process does, in one line, and whether it serves.
  void report(std::string_view text, bool serves);

 private:
  void add(int rank, const Pipes& pipes);
  void take_notes();
  void read(int rank);

  std::shared_ptr<SharedMemory> memory_;
  NoteSocket keeper_;
  std::mutex sending_;                     // to the keeper
  std::map<int, MessageReader> messages_;  // by rank
  HeldConnections connections_;
  Past past_;
  std::deque<RankEvent> events_;  // not yet returned by next()
  bool over_ = false;             // no rank runs any more
  Status ended_;
};

}  // namespace wideep::transport
