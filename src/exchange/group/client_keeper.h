// SPDX-License-Identifier: Apache-2.0
//
// Accepts the clients of a front, and holds their sockets, so that they outlive it
// (group/kept_ranks.h has the other side: HeldConnections).
//
// Thread safety: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "group/kept_ranks.h"
#include "group/notes.h"

namespace wideep::transport {

// The clients for which a front has descriptors, too: one that it cannot receive would be lost. A
// connection takes two, and fronts need some for pipes to ranks and for files.
size_t clients_for_descriptors(int num_ranks);

class ClientKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  // listener: −1: there is none. companion: makes the descriptor that stays with a connection.
  // num_ranks: for which a front needs descriptors too. max_clients: or fewer, as descriptors
  // suffice.
  ClientKeeper(int listener, std::function<Result<int>(int socket)> companion, int num_ranks,
               size_t max_clients);
  ~ClientKeeper() { forget(); }
  ClientKeeper(const ClientKeeper&) = delete;
  ClientKeeper& operator=(const ClientKeeper&) = delete;

  // For a front that is about to be forked: it has all connections that there are. `notes` is the
  // keeper's end of its socket.
  void begin(NoteSocket notes);
  std::vector<HeldConnections::Held> held() const;

  void add_descriptors(std::vector<pollfd>* fds) const;
  std::optional<Clock::time_point> next_deadline() const;
  void take_notes();
  void accept();
  // In a process that was just forked: a connection is closed when all its copies are.
  void forget();
  // In a front: only the notes are not its own.
  void forget_notes() { notes_ = NoteSocket(); }

 private:
  void pass_on();
  void pause(int error);
  struct Client {
    int socket = -1, companion = -1;
    bool is_passed_on = false;
  };
  int listener_;
  std::function<Result<int>(int)> companion_;
  const size_t max_clients_;
  const bool is_by_descriptors_;  // more may be, but for the limit of open files
  NoteSocket notes_;
  std::map<int64_t, Client> clients_;
  int64_t next_ = 1;
  bool accepts_ = false;
  size_t waiting_ = 0;  // not passed on yet
  Clock::time_point accept_after_;
  std::optional<Clock::time_point> warned_at_;  // that no client can be accepted
};

}  // namespace wideep::transport
