// SPDX-License-Identifier: Apache-2.0
//
// A link over TCP between ranks of several nodes, for one epoch of their group (members.h): each
// epoch has connections of its own, so no message of one reaches the next.
//
// A connection carries messages one way. The sender opens it with its first message, says who it
// is, and proves that it has the links' key (cluster_key.h); the receiver takes it if it is of the
// same epoch, and the only one of this sender. So the proof that somebody has seen on its way is of
// no use. What a sender of an earlier epoch has opened is closed unread, and so is what strangers
// open: they cost a socket each, at most kMaxStrangers.
//
// Thread safety: as Link.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "transport/cluster_key.h"
#include "transport/link.h"
#include "transport/tcp.h"

namespace wideep::transport {

class TcpLink : public Link {
 public:
  struct Place {
    uint64_t service = 0;  // a number that other services on the same machines do not have
    uint32_t epoch = 0;
    int rank = 0;
    ClusterKey key = {};  // ClusterKey::for_links
  };
  // Connections that have not said who they are, beside one for each rank: the oldest makes room.
  static constexpr size_t kMaxStrangers = 32;
  static constexpr std::chrono::seconds kGreetingPatience{30};
  // listener: of this rank, for all epochs; owned by the caller, outlives the link. addresses:
  // [ranks of the world] where the others listen.
  TcpLink(int listener, const Place& place, std::span<const PeerAddress> addresses);
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  void send(int to, Bytes message) override;
  void send_with_next(int to, Bytes message) override;
  std::optional<Received> receive() override;
  void wait(std::chrono::nanoseconds at_most) override;
  bool has_sent_all() override;
  // A connection that breaks. A peer that has closed one between two messages is no failure: the
  // keeper says who has died.
  Status failure() const override { return failure_; }
  // Noticed within 0.8 s while messages are under way, two retransmissions without an answer;
  // within 1.2 s where no connection comes about, a second attempt.
  int cut_from() const override { return cut_from_; }

 private:
  struct Who {
    uint64_t magic = 0, service = 0;
    uint32_t epoch = 0;
    int32_t from = 0, to = 0;
    uint32_t unused = 0;
  };
  struct Greeting {
    Who who;
    Digest proof = {};
  };
  using Length = uint64_t;

  struct Outgoing {
    int socket = -1;
    std::deque<Bytes> queue;  // each with its length before it
    size_t sent = 0;          // bytes of the first
    bool is_closed = false;
    int silent_looks = 0;  // in a row
  };
  struct Incoming {
    int socket = -1;
    int from = -1;  // −1: it has not said
    std::chrono::steady_clock::time_point since;
    std::vector<std::byte> inbox;  // only for a greeting before that has come
    size_t begin = 0, end = 0;     // unread bytes of the inbox
    Bytes message;                 // that is being received; grows as its bytes come
    size_t length = 0;             // its bytes in all
    size_t missing = 0;            // those that have not come
    bool in_message = false;
  };

  void open(int to, Outgoing& peer);
  Outgoing* queue(int to, Bytes message);
  void write(int to, Outgoing& peer);
  void look();
  void look_for_cuts();
  void accept_some();
  void close_strangers();
  bool admit(const Greeting& greeting, Incoming& peer);
  bool read(Incoming& peer);
  bool parse(Incoming& peer);
  static void make_room(Incoming& peer, size_t bytes);
  void close(Incoming& peer);
  void fail(int peer, const char* what, int error);
  void fail_cut(int peer, const char* how);

  int listener_;
  Place place_;
  std::vector<PeerAddress> addresses_;
  int events_ = -1;  // epoll
  std::map<int, Outgoing> outgoing_;
  size_t unsent_ = 0;                 // messages in all queues
  bool cannot_accept_ = false;        // connections wait, but there is no room for them
  std::map<int, Incoming> incoming_;  // by socket
  std::vector<bool> has_greeted_;     // [ranks] that this link has a connection of
  size_t num_strangers_ = 0;          // in incoming_
  std::deque<Received> received_;
  std::chrono::steady_clock::time_point next_look_for_cuts_;
  Status failure_;
  int cut_from_ = kNone;
};

}  // namespace wideep::transport
