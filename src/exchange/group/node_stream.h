// SPDX-License-Identifier: Apache-2.0
//
// What the keeper of a service and the keepers of its other nodes say to each other
// (group/node_server.h, group/node_client.h), over one TCP connection for each node.
//
// They begin as group/node_handshake.h says. What comes is checked all the same: lengths here,
// and ranks and members against the size of the world.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "group/members.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::transport {

// How often each side says that it is there, and after what silence the other one counts as gone.
inline constexpr std::chrono::milliseconds kPulseInterval{100};
inline constexpr std::chrono::milliseconds kNodePatience{600};

struct NodeMessage {
  enum class Kind : uint8_t {
    // both ways
    kPulse,
    // node → service
    kNumbers,   // numbers: what it can have of each thing that all must have equally much of
    kSettings,  // text: names and values
    kUp,        // it can start ranks
    kReady,     // rank, text: where it listens
    kLeft,      // rank, epoch, text: why, value: a rank that it cannot reach, −1: none
    kDied,      // rank, text: how, value: as Note::kRankDied
    kReached,   // rank: of kReach
    // service → node
    kGreeted,   // the first one: the node may say what it has
    kBusy,      // instead: this node is there already; text: which one. It may try again
    kWelcome,   // service, numbers: the least of all nodes
    kRefused,   // text: the error with which the node ends
    kStart,     // rank, value: the serial number of its pipes
    kPipes,     // the same, for another front
    kKill,      // rank, value: 1: it hangs
    kEndRank,   // rank
    kClosing,   // the members are to leave after their iteration
    kBroken,    // epoch, text: why
    kEpoch,     // epoch, members, addresses
    kReach,     // rank, text: where it listens; the node is to say whether it reaches it
    kStopping,  // the service has got a stop signal, and ends when its requests have
    kFinished,  // the service has ended
  };
  Kind kind = Kind::kPulse;
  uint32_t epoch = 0;
  int32_t rank = 0;
  int64_t value = 0;
  std::string text;
  std::vector<uint64_t> numbers;  // kWelcome: the first is the number of the service

  // In `numbers`.
  void set_members(const Members& members, const std::vector<PeerAddress>& addresses);
  // nullopt: they are none of a world of num_ranks ranks, each named once, ascending.
  std::optional<Members> members(size_t num_ranks) const;
  std::vector<PeerAddress> addresses(size_t num_ranks) const;
};

// One end of the connection, which it owns. Never waits.
class NodeStream {
 public:
  NodeStream() = default;
  explicit NodeStream(int socket);
  ~NodeStream();
  NodeStream(NodeStream&& other) noexcept { *this = std::move(other); }
  NodeStream& operator=(NodeStream&& other) noexcept;

  int socket() const { return socket_; }
  // After an error or the end of the connection, until which messages may still come.
  bool is_broken() const { return is_broken_; }
  void send(const NodeMessage& message);
  // Whether write() is to be called when the socket can be written to.
  bool has_unsent() const { return !unsent_.empty(); }
  void write();
  std::optional<NodeMessage> next();
  // Whether next() may return a message though nothing comes any more.
  bool has_unread() const { return !inbox_.empty(); }
  // Since when nothing has come, if it is not in the socket.
  std::chrono::steady_clock::time_point heard_at() const { return heard_at_; }
  void heard() { heard_at_ = std::chrono::steady_clock::now(); }

 private:
  std::optional<NodeMessage> parse();

  int socket_ = -1;
  bool is_broken_ = false;
  bool is_garbled_ = false;  // what comes is no message: nothing more is read
  std::string inbox_, unsent_;
  std::chrono::steady_clock::time_point heard_at_;
};

}  // namespace wideep::transport
