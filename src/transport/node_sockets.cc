// SPDX-License-Identifier: Apache-2.0
#include "transport/node_sockets.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/try.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kGoodbye = 'g';
constexpr std::chrono::seconds kShareTimeout{120};  // the first rank may be late, but not dead

// What goes with a descriptor, or says why there is none.
struct Gift {
  bool given = false;
  bool huge = false;
  uint64_t num_bytes = 0;
  char why[256] = {};
};

Status socket_failed(const char* what) {
  return failed(fmt::format("ranks of one node: {}: {}", what, std::strerror(errno)));
}

sockaddr_un address_of(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // after a 0: the abstract space
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool send_gift(int socket, Gift gift, int fd) {
  iovec bytes{&gift, sizeof(gift)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (gift.given) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof(gift);
}

// −1: no descriptor came with it.
bool receive_gift(int socket, Gift* gift, int* fd) {
  iovec bytes{gift, sizeof(*gift)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  *fd = -1;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*gift)) return false;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    std::memcpy(fd, CMSG_DATA(header), sizeof(*fd));
  }
  return true;
}

}  // namespace

NodeSockets::~NodeSockets() {
  if (listener_ >= 0) ::close(listener_);
  for (const Peer& peer : peers_) ::close(peer.socket);
}

Result<std::string> NodeSockets::listen() {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return socket_failed("getrandom");
  const std::string name = fmt::format("wideep-{}-{:016x}", ::getpid(), random);
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, &length);
  if (listener_ < 0 ||
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener_, 1024) != 0) {
    return socket_failed("cannot listen");
  }
  return name;
}

Status NodeSockets::accept(std::span<const int> ranks, std::chrono::milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  while (peers_.size() < ranks.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{listener_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
      return deadline_exceeded(fmt::format(
          "only {} of {} ranks of the node came to share its memory", peers_.size(), ranks.size()));
    }
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const timeval patience{left.count() / 1000, left.count() % 1000 * 1000}, for_ever{};
    ucred who{};
    socklen_t length = sizeof(who);
    int rank = -1;
    const auto wait_for = [&](const timeval& time) {
      return ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0;
    };
    // Who connects and says nothing holds us no longer than who does not connect.
    const bool known =
        socket >= 0 && ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
        who.uid == ::geteuid() && wait_for(patience) &&
        ::recv(socket, &rank, sizeof(rank), MSG_WAITALL) == sizeof(rank) && wait_for(for_ever) &&
        std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (known) {
      peers_.push_back({rank, who.pid, socket});
    } else if (socket >= 0) {
      ::close(socket);  // a stranger
    }
  }
  return {};
}

Status NodeSockets::connect(const std::string& name, int first_rank, int my_rank) {
  is_first_ = false;
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return socket_failed("socket");
  peers_.push_back({first_rank, -1, socket});
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, &length);
  ucred who{};
  socklen_t who_length = sizeof(who);
  const timeval timeout{kShareTimeout.count(), 0};
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &who_length) != 0 ||
      ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
      ::send(socket, &my_rank, sizeof(my_rank), MSG_NOSIGNAL) != sizeof(my_rank)) {
    return socket_failed("cannot connect");
  }
  peers_.back().pid = who.pid;
  return {};
}

Result<base::SharedBytes> NodeSockets::share(const char* purpose, size_t num_bytes,
                                             base::SharedPages pages) {
  return is_first_ ? give(purpose, num_bytes, pages) : take(purpose, num_bytes);
}

Result<base::SharedBytes> NodeSockets::give(const char* purpose, size_t num_bytes,
                                            base::SharedPages pages) {
  Result<base::SharedBytes> made = base::SharedBytes::create(purpose, num_bytes, pages);
  Gift gift{.given = made.ok(), .huge = made.ok() && made->huge(), .num_bytes = num_bytes};
  if (!made.ok()) {
    made.status().message().copy(gift.why, sizeof(gift.why) - 1);
  }
  for (const Peer& peer : peers_) {
    if (send_gift(peer.socket, gift, made.ok() ? made->fd() : -1)) continue;
    return failed(fmt::format("{}: rank {} (process {}) has ended", purpose, peer.rank, peer.pid));
  }
  return made;
}

Result<base::SharedBytes> NodeSockets::take(const char* purpose, size_t num_bytes) {
  Gift gift;
  int fd = -1;
  if (!receive_gift(peers_[0].socket, &gift, &fd)) {
    return failed(fmt::format("{}: nothing came from rank {} (process {}), which shares it",
                              purpose, peers_[0].rank, peers_[0].pid));
  }
  if (!gift.given) return failed(gift.why);
  if (fd < 0) {
    return failed(
        fmt::format("{}: rank {}'s file descriptor was not let in; raise the limit of open "
                    "files (ulimit -n)",
                    purpose, peers_[0].rank));
  }
  if (gift.num_bytes != num_bytes) {
    ::close(fd);
    return invalid_input(
        fmt::format("{}: {} bytes on rank {}, {} here: start all ranks with the "
                    "same settings",
                    purpose, gift.num_bytes, peers_[0].rank, num_bytes));
  }
  return base::SharedBytes::adopt(purpose, fd, num_bytes, gift.huge);
}

void NodeSockets::say_goodbye() const {
  for (const Peer& peer : peers_) {
    // Who is gone already needs none.
    [[maybe_unused]] const ssize_t sent = ::send(peer.socket, &kGoodbye, 1, MSG_NOSIGNAL);
  }
}

bool NodeSockets::has_said_goodbye(const Peer& peer) {
  char byte = 0;
  return ::recv(peer.socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1 && byte == kGoodbye;
}

}  // namespace wideep::transport
