// SPDX-License-Identifier: Apache-2.0
//
// The first rank listens under a random abstract name, and memory goes to the others as a
// descriptor with a message that says how much it is. A failed allocation is sent as well, or the
// others would wait for it until their deadline. That the other end has died shows as the end of
// the connection, which is why ranks announce a planned end with one byte that is never read but
// looked at.
#include "group/node_sockets.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/try.h"
#include "transport/local_socket.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kEndByte = 'e';
// Long, because the first rank may still be loading. If it dies, recvmsg returns at once.
constexpr std::chrono::seconds kShareTimeout{120};

// Accompanies the descriptor of shared memory, or carries the error if there is none.
struct MemoryMessage {
  bool allocated = false;
  bool huge = false;
  uint64_t num_bytes = 0;
  char error[256] = {};
};

Status socket_failed(const char* what) {
  return failed(fmt::format("ranks of one node: {}: {}", what, std::strerror(errno)));
}

std::span<std::byte> bytes_of(MemoryMessage& memory) {
  return std::as_writable_bytes(std::span(&memory, 1));
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
  const LocalAddress address = abstract_address(name);
  if (listener_ < 0 || ::bind(listener_, address.get(), address.length) != 0 ||
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
      return deadline_exceeded(
          fmt::format("only {} of {} ranks of the node connected in time to share its memory",
                      peers_.size(), ranks.size()));
    }
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const timeval patience{left.count() / 1000, left.count() % 1000 * 1000}, for_ever{};
    ucred who{};
    socklen_t length = sizeof(who);
    int rank = -1;
    const auto wait_for = [&](const timeval& time) {
      return ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0;
    };
    // Any process of the machine can connect to the name: accept only this user's, and only with a
    // rank that is expected. A process that connects but sends no rank must not block this one for
    // longer than `timeout`, hence the receive timeout.
    const bool known =
        socket >= 0 && ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
        who.uid == ::geteuid() && wait_for(patience) &&
        ::recv(socket, &rank, sizeof(rank), MSG_WAITALL) == sizeof(rank) && wait_for(for_ever) &&
        std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (known) {
      peers_.push_back({rank, who.pid, socket});
    } else if (socket >= 0) {
      ::close(socket);  // not one of our ranks
    }
  }
  return {};
}

Status NodeSockets::connect(const std::string& name, int first_rank, int my_rank) {
  is_first_ = false;
  // SO_PEERCRED gives the first rank's process id, for error messages.
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return socket_failed("socket");
  peers_.push_back({first_rank, -1, socket});
  const LocalAddress address = abstract_address(name);
  ucred who{};
  socklen_t who_length = sizeof(who);
  const timeval timeout{kShareTimeout.count(), 0};
  if (::connect(socket, address.get(), address.length) != 0 ||
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
  return is_first_ ? create_and_send(purpose, num_bytes, pages) : receive(purpose, num_bytes);
}

// A failure to allocate is sent too: the other ranks would otherwise wait until their deadline.
Result<base::SharedBytes> NodeSockets::create_and_send(const char* purpose, size_t num_bytes,
                                                       base::SharedPages pages) {
  Result<base::SharedBytes> made = base::SharedBytes::create(purpose, num_bytes, pages);
  MemoryMessage memory{
      .allocated = made.ok(), .huge = made.ok() && made->huge(), .num_bytes = num_bytes};
  if (!made.ok()) {
    made.status().message().copy(memory.error, sizeof(memory.error) - 1);
  }
  for (const Peer& peer : peers_) {
    if (send_with_descriptor(peer.socket, bytes_of(memory), made.ok() ? made->fd() : -1)) continue;
    return failed(fmt::format("{}: rank {} (process {}) has ended", purpose, peer.rank, peer.pid));
  }
  return made;
}

Result<base::SharedBytes> NodeSockets::receive(const char* purpose, size_t num_bytes) {
  MemoryMessage memory;
  int fd = -1;
  if (receive_with_descriptor(peers_[0].socket, bytes_of(memory), &fd, MSG_WAITALL) !=
      sizeof(memory)) {
    if (fd >= 0) ::close(fd);
    return failed(fmt::format("{}: received nothing from rank {} (process {}), which allocates it",
                              purpose, peers_[0].rank, peers_[0].pid));
  }
  if (!memory.allocated) return failed(memory.error);
  if (fd < 0) {
    return failed(
        fmt::format("{}: could not receive the file descriptor of rank {}; raise the limit of open "
                    "files (ulimit -n)",
                    purpose, peers_[0].rank));
  }
  if (memory.num_bytes != num_bytes) {
    ::close(fd);
    return invalid_input(
        fmt::format("{}: {} bytes on rank {}, {} here: start all ranks with the "
                    "same settings",
                    purpose, memory.num_bytes, peers_[0].rank, num_bytes));
  }
  return base::SharedBytes::adopt(purpose, fd, num_bytes, memory.huge);
}

void NodeSockets::announce_end() const {
  for (const Peer& peer : peers_) {
    // An error means that the peer has ended already; then there is nothing to tell it.
    [[maybe_unused]] const ssize_t sent = ::send(peer.socket, &kEndByte, 1, MSG_NOSIGNAL);
  }
}

bool NodeSockets::has_announced_end(const Peer& peer) {
  char byte = 0;
  // Peek: the byte stays, so that every later call gives the same answer.
  return ::recv(peer.socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1 && byte == kEndByte;
}

}  // namespace wideep::transport
