// SPDX-License-Identifier: Apache-2.0
//
// Short messages between a keeper and the processes that it has forked (group/keeper.h), over a
// pair of sockets that keeps message boundaries. Descriptors may travel with them.
//
// Thread safety: one thread sends and one receives at a time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>

#include "group/members.h"
#include "wideep/status.h"

namespace wideep::transport {

struct Note {
  enum class Kind : uint8_t {
    // rank → keeper
    kReady,  // has loaded, and asks to join; text: where it listens, if ranks are on several nodes
    // epoch: is no member of it any more; text: the group's error, if there is one; value: a rank
    // that it cannot reach (Link::cut_from)
    kLeft,
    // keeper → rank
    // epoch, ranks: is a member now; descriptors: to read commands from and to write messages to
    // instead of those before, because there is another front
    kJoin,
    kEnd,  // is not needed any more
    // keeper → front
    kRankStarted,  // rank; descriptors: to write its commands, to read its messages
    kRankDied,     // rank, text: how, value: one of the constants below
    kStopSignal,   // value: SIGINT or SIGTERM
    kPing,         // value: a number, which is to come back
    kDrain,        // by SIGHUP: no requests are to be taken any more
    // front → keeper
    kEndWithin,  // value: milliseconds until the ranks are ended by force
    kStop,       // nothing is left to do: no epoch begins any more, and the ranks end
    kReport,     // for the service manager; value: 1: it serves; text: what it does
    kWant,       // value: the number of ranks
    kDrains,     // value: 1: takes no requests, 0: takes them; fronts that follow do so, too
    kAlive,      // value: the number of a kPing, which all its threads have seen
    // front ↔ keeper, over a socket of their own: value is the number of a connection
    kAccept,  // → from now on clients may come
    kHeld,    // ← a client has come; descriptors: its socket, and its companion
    kDrop,    // → the connection is closed
    // either → keeper: text is the error with which the sender ends, value its StatusCode
    kFailed,
  };
  // kDone: it has ended by itself, without an error.
  static constexpr int64_t kKilled = 0, kExpected = 1, kOwnFault = 2, kDone = 3;

  Kind kind = Kind::kEnd;
  uint32_t epoch = 0;
  int32_t rank = 0;
  int64_t value = 0;
  std::array<uint64_t, kMaxRanks / 64> ranks = {};  // bits
  std::array<char, 512> text = {};

  void set_members(const Members& members);
  Members members() const;
  void set_text(std::string_view new_text);
  std::string_view text_view() const { return text.data(); }
  void set_status(const Status& status);
  Status status() const { return {static_cast<StatusCode>(value), std::string(text_view())}; }
};

// One end of the pair, which it owns.
class NoteSocket {
 public:
  static constexpr int kNone = -1;
  struct Pair;
  static Result<Pair> make_pair();

  NoteSocket() = default;
  explicit NoteSocket(int fd) : fd_(fd) {}
  ~NoteSocket();
  NoteSocket(NoteSocket&& other) noexcept : fd_(std::exchange(other.fd_, kNone)) {}
  NoteSocket& operator=(NoteSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  // Never waits: false if the other end is closed, or has not read for so long that the socket is
  // full. fds: copies of these descriptors arrive with the note.
  bool send(const Note& note, std::array<int, 2> fds = {kNone, kNone}) const {
    return try_to_send(note, fds) == Sent::kYes;
  }
  // Waits until there is room: for notes to a keeper, which never waits for anybody. False: the
  // other end is closed.
  bool send_surely(const Note& note) const;
  enum class Sent { kYes, kFull, kClosed };
  Sent try_to_send(const Note& note, std::array<int, 2> fds = {kNone, kNone}) const;
  enum class Got { kNote, kNothing, kClosed };
  // waits: until a note arrives or the other end is closed. fds: those that came with the note,
  // owned by the caller; kNone where there were none.
  Got receive(Note* note, bool waits, std::array<int, 2>* fds = nullptr) const;

 private:
  int fd_ = kNone;
};

struct NoteSocket::Pair {
  NoteSocket keeper, child;
};

// Notes for a process that may not read for a while, in their order. None is lost while it lives.
class NoteQueue {
 public:
  NoteQueue() = default;
  ~NoteQueue() { clear(); }
  NoteQueue(const NoteQueue&) = delete;
  NoteQueue& operator=(const NoteQueue&) = delete;

  // Takes over the descriptors.
  void send(const NoteSocket& to, const Note& note, std::array<int, 2> fds);
  // To be called when the socket can be written to.
  void flush(const NoteSocket& to);
  bool is_empty() const { return queue_.empty(); }
  void clear();

 private:
  struct Queued {
    Note note;
    std::array<int, 2> fds;
  };
  std::deque<Queued> queue_;
};

}  // namespace wideep::transport
