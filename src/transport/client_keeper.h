// SPDX-License-Identifier: Apache-2.0
//
// Accepts the clients of a front, and holds their sockets, so that they outlive it
// (transport/kept_ranks.h has the other side: HeldConnections).
//
// Thread safety: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "transport/kept_ranks.h"
#include "transport/notes.h"

namespace wideep::transport {

class ClientKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  // listener: −1: there is none. companion: makes the descriptor that stays with a connection.
  // num_ranks: whose pipes a front has.
  ClientKeeper(int listener, std::function<Result<int>(int socket)> companion, int num_ranks);
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
  void pause_accepting(int error);
  struct Client {
    int socket = -1, companion = -1;
    bool is_passed_on = false;
  };
  int listener_;
  std::function<Result<int>(int)> companion_;
  NoteSocket notes_;
  std::map<int64_t, Client> clients_;
  int64_t next_ = 1;
  bool accepts_ = false;
  size_t waiting_ = 0;  // not passed on yet
  size_t most_clients_;
  Clock::time_point accept_after_;
  std::optional<Clock::time_point> warned_at_;  // that no client can be accepted
};

}  // namespace wideep::transport
