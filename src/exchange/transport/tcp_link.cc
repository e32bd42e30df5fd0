// SPDX-License-Identifier: Apache-2.0
//
// On a connection: Greeting, then for each message its length and its bytes.
//
// Nothing here blocks: what a socket does not take stays in its queue and is written when the rank
// looks for messages. The greeting is proved before its sender gets an inbox, and a message gets
// memory as its bytes come and not by its length, because anybody can connect. That a peer is out
// of reach is read from the kernel's state of the connection (look_for_cuts): a wait for an answer
// could not tell it from a peer that computes.
#include "transport/tcp_link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace wideep::transport {
namespace {

constexpr uint64_t kMagic = 0x6b6e696c70656477;  // "wdeplink"
constexpr size_t kInboxBytes = size_t{64} << 10;
constexpr size_t kFirstBytes = size_t{16} << 20;      // that a message gets before they have come
constexpr size_t kMaxMessageBytes = size_t{4} << 30;  // more is no message of a rank
constexpr std::string_view kPurpose = "wideep link";
constexpr int kMaxAtOnce = 16;  // connections
// The kernel sends again after 0.2 s, then after twice as long; to connect, after a second.
constexpr std::chrono::milliseconds kCutInterval{100}, kSilence{500}, kLongestWay{300};
constexpr unsigned kMaxRetransmissions = 2;

void append(Bytes& to, const void* bytes, size_t count) {
  const auto* first = static_cast<const std::byte*>(bytes);
  to.insert(to.end(), first, first + count);
}

}  // namespace

TcpLink::TcpLink(int listener, const Place& place, std::span<const PeerAddress> addresses)
    : listener_(listener),
      place_(place),
      addresses_(addresses.begin(), addresses.end()),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      has_greeted_(addresses.size(), false) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = listener_}};
  if (events_ < 0 || ::epoll_ctl(events_, EPOLL_CTL_ADD, listener_, &event) != 0) {
    failure_ = failed(fmt::format("epoll: {}", std::strerror(errno)));
  }
}

TcpLink::~TcpLink() {
  for (const auto& [rank, peer] : outgoing_) {
    if (peer.socket >= 0) ::close(peer.socket);
  }
  for (const auto& [socket, peer] : incoming_) ::close(socket);
  if (events_ >= 0) ::close(events_);
}

void TcpLink::fail(int peer, const char* what, int error) {
  if (!failure_.ok()) return;
  failure_ = failed(fmt::format("rank {}: {} rank {} ({}): {}", place_.rank, what, peer,
                                addresses_[static_cast<size_t>(peer)].text(),
                                error == 0 ? "it ended within a message" : std::strerror(error)));
}

void TcpLink::fail_cut(int peer, const char* how) {
  if (!failure_.ok()) return;
  cut_from_ = peer;
  failure_ = failed(fmt::format("rank {} cannot reach rank {} ({}): {}", place_.rank, peer,
                                addresses_[static_cast<size_t>(peer)].text(), how));
}

// ---- sending ----

void TcpLink::open(int to, Outgoing& peer) {
  int error = 0;
  const Result<int> socket = begin_to_connect(addresses_[static_cast<size_t>(to)], &error);
  if (!socket.ok()) {
    peer.is_closed = true;
    if (is_unreachable(error)) fail_cut(to, std::strerror(error));
    if (failure_.ok()) failure_ = socket.status();
    return;
  }
  peer.socket = *socket;
  const Who who{.magic = kMagic,
                .service = place_.service,
                .epoch = place_.epoch,
                .from = place_.rank,
                .to = to};
  const Greeting greeting{.who = who, .proof = place_.key.prove(kPurpose, memory_of(who))};
  Bytes bytes;
  append(bytes, &greeting, sizeof(greeting));
  peer.queue.push_back(std::move(bytes));
  ++unsent_;
}

void TcpLink::send(int to, Bytes message) {
  if (Outgoing* const peer = queue(to, std::move(message))) write(to, *peer);
}

void TcpLink::send_with_next(int to, Bytes message) { queue(to, std::move(message)); }

// Null: the connection is closed.
TcpLink::Outgoing* TcpLink::queue(int to, Bytes message) {
  Outgoing& peer = outgoing_[to];
  if (peer.socket < 0 && !peer.is_closed) open(to, peer);
  if (peer.is_closed) return nullptr;
  const Length length = message.size();
  Bytes head;
  append(head, &length, sizeof(length));
  peer.queue.push_back(std::move(head));
  ++unsent_;
  if (!message.empty()) {
    peer.queue.push_back(std::move(message));
    ++unsent_;
  }
  return &peer;
}

// What the socket takes now.
void TcpLink::write(int to, Outgoing& peer) {
  while (!peer.queue.empty()) {
    std::array<iovec, 16> parts;
    size_t count = 0;
    for (const Bytes& each : peer.queue) {
      const size_t skip = count == 0 ? peer.sent : 0;
      parts[count++] = {const_cast<std::byte*>(each.data()) + skip, each.size() - skip};
      if (count == parts.size()) break;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    ssize_t sent = ::sendmsg(peer.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    // EAGAIN: full; ENOTCONN: the connection is still being made.
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) return;
    if (sent < 0) {
      if (is_unreachable(errno)) fail_cut(to, std::strerror(errno));
      fail(to, "cannot send to", errno);
      peer.is_closed = true;
      unsent_ -= peer.queue.size();
      peer.queue.clear();
      return;
    }
    for (auto left = static_cast<size_t>(sent); left > 0;) {
      const size_t rest = peer.queue.front().size() - peer.sent;
      if (left < rest) {
        peer.sent += left;
        break;
      }
      left -= rest;
      peer.sent = 0;
      peer.queue.pop_front();
      --unsent_;
    }
  }
}

bool TcpLink::has_sent_all() {
  if (unsent_ > 0) {
    for (auto& [to, peer] : outgoing_) {
      if (!peer.queue.empty()) write(to, peer);
    }
  }
  return unsent_ == 0;
}

// ---- receiving ----

std::optional<Link::Received> TcpLink::receive() {
  has_sent_all();
  look_for_cuts();
  if (received_.empty()) look();
  if (received_.empty()) return std::nullopt;
  Received first = std::move(received_.front());
  received_.pop_front();
  return first;
}

// While a socket is full, it is written to now and then. A connection that cannot be accepted would
// wake the rank again and again.
void TcpLink::wait(std::chrono::nanoseconds at_most) {
  if (cannot_accept_) return Link::wait(at_most);
  if (!has_sent_all()) at_most = std::min<std::chrono::nanoseconds>(at_most, kPollPause);
  pollfd ready{.fd = events_, .events = POLLIN, .revents = 0};
  const timespec limit{.tv_sec = at_most / std::chrono::seconds(1),
                       .tv_nsec = (at_most % std::chrono::seconds(1)).count()};
  ::ppoll(&ready, 1, &limit, nullptr);
}

void TcpLink::look() {
  if (num_strangers_ > 0) close_strangers();
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(events_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<size_t>(i)].data.fd;
    if (socket == listener_) {
      accept_some();
    } else if (const auto peer = incoming_.find(socket); peer != incoming_.end()) {
      if (!read(peer->second)) close(peer->second);
    }
  }
}

// The kernel answers for a process that is busy. So who leaves two retransmissions unanswered, or
// two attempts to connect, is out of reach, whatever its process does; the second attempt has
// kLongestWay to be answered, since nothing is known yet of the way. A peer that reads nothing is
// no such case: with a closed window nothing is under way.
void TcpLink::look_for_cuts() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_for_cuts_) return;
  next_look_for_cuts_ = now + kCutInterval;
  for (auto& [to, peer] : outgoing_) {
    if (peer.socket < 0 || peer.is_closed) continue;
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (::getsockopt(peer.socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    const bool is_connecting = info.tcpi_state == TCP_SYN_SENT;
    const bool is_silent = is_connecting || info.tcpi_last_ack_recv >= kSilence.count();
    const unsigned max = is_connecting ? 1 : kMaxRetransmissions;
    const bool is_unanswered = info.tcpi_unacked > 0 && info.tcpi_retransmits >= max && is_silent;
    peer.silent_looks = is_unanswered ? peer.silent_looks + 1 : 0;
    if (peer.silent_looks > (is_connecting ? kLongestWay / kCutInterval : 0)) {
      fail_cut(to, is_connecting ? "its machine does not answer"
                                 : "its machine does not acknowledge what is sent");
    }
  }
}

// Who connects again and again must not hold the rank.
void TcpLink::accept_some() {
  for (int left = kMaxAtOnce; left > 0; --left) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0 && errno == EINTR) continue;
    cannot_accept_ = socket < 0 && errno != EAGAIN && errno != EWOULDBLOCK;
    if (socket < 0) return;
    set_options_between_nodes(socket);
    epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
    if (::epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event) != 0) {
      ::close(socket);
      continue;
    }
    Incoming& peer = incoming_[socket];
    peer.socket = socket;
    peer.since = std::chrono::steady_clock::now();
    peer.inbox.resize(sizeof(Greeting));
    ++num_strangers_;
    close_strangers();
  }
}

// Those that are overdue, and the oldest one of too many.
void TcpLink::close_strangers() {
  const auto overdue = std::chrono::steady_clock::now() - kGreetingPatience;
  const size_t max = kMaxStrangers + addresses_.size();
  while (num_strangers_ > 0) {
    Incoming* oldest = nullptr;
    for (auto& [socket, peer] : incoming_) {
      if (peer.from < 0 && (oldest == nullptr || peer.since < oldest->since)) oldest = &peer;
    }
    if (num_strangers_ <= max && oldest->since > overdue) return;
    close(*oldest);
  }
}

void TcpLink::close(Incoming& peer) {
  const int socket = peer.socket;
  if (peer.from < 0) --num_strangers_;
  ::close(socket);  // epoll forgets it too
  incoming_.erase(socket);
}

// Reads what has come. False: the connection is at its end.
bool TcpLink::read(Incoming& peer) {
  for (;;) {
    // The rest of a long message goes to its place directly.
    const bool directly = peer.in_message && peer.begin == peer.end && peer.missing >= kInboxBytes;
    const size_t received = peer.length - peer.missing;
    if (directly) make_room(peer, received + kInboxBytes);
    std::byte* to = directly ? peer.message.data() + received : peer.inbox.data() + peer.end;
    const size_t room = directly ? peer.message.size() - received : peer.inbox.size() - peer.end;
    const ssize_t count = ::recv(peer.socket, to, room, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count < 0 && peer.from >= 0) fail(peer.from, "the connection has broken to", errno);
    if (count == 0 && (peer.in_message || peer.begin != peer.end) && peer.from >= 0) {
      fail(peer.from, "the connection has ended to", 0);
    }
    if (count <= 0) return false;
    if (directly) {
      peer.missing -= static_cast<size_t>(count);
    } else {
      peer.end += static_cast<size_t>(count);
    }
    if (!parse(peer)) return false;
    if (static_cast<size_t>(count) < room) return true;
  }
}

// False: the connection is not for this rank and epoch, or of somebody without the key.
bool TcpLink::admit(const Greeting& greeting, Incoming& peer) {
  const Who& who = greeting.who;
  const bool is_right = who.magic == kMagic && who.service == place_.service &&
                        who.epoch == place_.epoch && who.to == place_.rank && who.from >= 0 &&
                        static_cast<size_t>(who.from) < addresses_.size() && who.unused == 0 &&
                        is_same(greeting.proof, place_.key.prove(kPurpose, memory_of(who)));
  if (!is_right || has_greeted_[static_cast<size_t>(who.from)]) return false;
  has_greeted_[static_cast<size_t>(who.from)] = true;
  peer.from = who.from;
  peer.inbox.resize(kInboxBytes);
  peer.begin = peer.end = 0;
  --num_strangers_;
  return true;
}

// A length that is not true costs little: memory follows the bytes.
void TcpLink::make_room(Incoming& peer, size_t bytes) {
  if (peer.message.size() >= bytes) return;
  peer.message.resize(std::min(peer.length, std::max(bytes, 2 * peer.message.size())));
}

// False: this connection is not for this rank and epoch.
bool TcpLink::parse(Incoming& peer) {
  const auto take = [&](void* value, size_t bytes) {
    if (peer.end - peer.begin < bytes) return false;
    std::memcpy(value, peer.inbox.data() + peer.begin, bytes);
    peer.begin += bytes;
    return true;
  };
  for (;;) {
    if (peer.from < 0) {
      Greeting greeting;
      if (!take(&greeting, sizeof(greeting))) break;
      if (!admit(greeting, peer)) return false;
    }
    if (!peer.in_message) {
      Length length = 0;
      if (!take(&length, sizeof(length))) break;
      if (length > kMaxMessageBytes) {
        fail(peer.from, "an impossible length from", EPROTO);
        return false;
      }
      peer.message = Bytes(std::min<size_t>(length, kFirstBytes));
      peer.length = peer.missing = length;
      peer.in_message = true;
    }
    const size_t here = std::min(peer.missing, peer.end - peer.begin);
    if (here > 0) {
      const size_t received = peer.length - peer.missing;
      make_room(peer, received + here);
      std::memcpy(peer.message.data() + received, peer.inbox.data() + peer.begin, here);
    }
    peer.begin += here;
    peer.missing -= here;
    if (peer.missing > 0) break;
    received_.push_back({peer.from, std::move(peer.message)});
    peer.message = {};
    peer.in_message = false;
  }
  // The beginning of the next length or greeting moves to the front.
  std::memmove(peer.inbox.data(), peer.inbox.data() + peer.begin, peer.end - peer.begin);
  peer.end -= peer.begin;
  peer.begin = 0;
  return true;
}

}  // namespace wideep::transport
