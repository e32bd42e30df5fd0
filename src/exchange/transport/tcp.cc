// SPDX-License-Identifier: Apache-2.0
//
// Addresses are converted to the kernel's structs at the calls only; elsewhere they are a plain
// value that can lie in shared memory and in messages. A connection is always begun without
// blocking, and who wants to wait polls for it: the kernel's own timeout of connect() is minutes.
#include "transport/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/try.h"

namespace wideep::transport {
namespace {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t length = sizeof(bytes);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

SocketAddress for_kernel(const PeerAddress& address) {
  SocketAddress result;
  if (address.is_v6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.bytes);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    std::memcpy(&v6->sin6_addr, address.host.data(), sizeof(v6->sin6_addr));
    result.length = sizeof(*v6);
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result.bytes);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    std::memcpy(&v4->sin_addr, address.host.data(), sizeof(v4->sin_addr));
    result.length = sizeof(*v4);
  }
  return result;
}

PeerAddress from_kernel(const sockaddr* address) {
  PeerAddress result;
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    result.is_v6 = true;
    result.port = ntohs(v6->sin6_port);
    std::memcpy(result.host.data(), &v6->sin6_addr, sizeof(v6->sin6_addr));
  } else if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    result.port = ntohs(v4->sin_port);
    std::memcpy(result.host.data(), &v4->sin_addr, sizeof(v4->sin_addr));
  }
  return result;
}

Status cannot_listen(const PeerAddress& address, int socket) {
  const int error = errno;
  if (socket >= 0) ::close(socket);
  return failed(fmt::format("cannot listen on {}: {}", address.text(), std::strerror(error)));
}

Status connection_failed(const PeerAddress& address, int error) {
  return failed(fmt::format("no connection to {}: {}", address.text(), std::strerror(error)));
}

}  // namespace

std::string PeerAddress::text() const {
  char name[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(is_v6 ? AF_INET6 : AF_INET, host.data(), name, sizeof(name));
  return is_v6 ? fmt::format("[{}]:{}", name, port) : fmt::format("{}:{}", name, port);
}

bool PeerAddress::is_loopback() const {
  if (!is_v6) return host[0] == 127;
  std::array<uint8_t, 16> loopback = {};
  loopback.back() = 1;
  return host == loopback;
}

Result<PeerAddress> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  PeerAddress address;
  const auto wrong = [&] {
    return invalid_input(fmt::format("expected an address with a port, found '{}'", text));
  };
  if (colon == std::string::npos) return wrong();
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    address.is_v6 = true;
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end) return wrong();
  if (::inet_pton(address.is_v6 ? AF_INET6 : AF_INET, host.c_str(), address.host.data()) != 1) {
    return wrong();
  }
  return address;
}

Result<PeerAddress> resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return invalid_input(fmt::format("'{}' is no address: {}", host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  PeerAddress address = from_kernel(list->ai_addr);
  address.port = static_cast<uint16_t>(port);
  return address;
}

// Of sockets that all reuse addresses, only one that listens keeps others from an address.
Result<int> reserve_address(const PeerAddress& address) {
  const int socket =
      ::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  SocketAddress where = for_kernel(address);
  if (socket < 0 || ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket, where.get(), where.length) != 0) {
    return cannot_listen(address, socket);
  }
  return socket;
}

Result<int> listen_on(const PeerAddress& address) {
  WIDEEP_TRY_ASSIGN(const int socket, reserve_address(address));
  if (::listen(socket, SOMAXCONN) != 0) return cannot_listen(address, socket);
  return socket;
}

Result<int> begin_to_connect(const PeerAddress& address, int* error) {
  const int socket =
      ::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return connection_failed(address, errno);
  set_options_between_nodes(socket);
  SocketAddress where = for_kernel(address);
  if (::connect(socket, where.get(), where.length) == 0 || errno == EINPROGRESS) return socket;
  const int why = errno;
  if (error != nullptr) *error = why;
  ::close(socket);
  return connection_failed(address, why);
}

// EINVAL: of connect(), where a route is a black hole.
bool is_unreachable(int error) {
  switch (error) {
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EINVAL:
      return true;
    default:
      return false;
  }
}

Result<int> connect_to(const PeerAddress& address, std::chrono::milliseconds timeout) {
  WIDEEP_TRY_ASSIGN(const int socket, begin_to_connect(address));
  pollfd ready{socket, POLLOUT, 0};
  const int polled = ::poll(&ready, 1, static_cast<int>(timeout.count()));
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  if (polled > 0 && error == 0) {
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
    return socket;
  }
  ::close(socket);
  if (error != 0) return connection_failed(address, error);
  return deadline_exceeded(
      fmt::format("no connection to {} within {} ms", address.text(), timeout.count()));
}

void set_options_between_nodes(int socket) {
  const int on = 1, milliseconds = static_cast<int>(kAcknowledgeWithin.count());
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

void set_keep_alive(int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  constexpr int kProbes = 4;  // a second apart, after a second of silence
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

PeerAddress local_address(int socket) {
  SocketAddress address;
  if (::getsockname(socket, address.get(), &address.length) != 0) return {};
  return from_kernel(address.get());
}

PeerAddress remote_address(int socket) {
  SocketAddress address;
  if (::getpeername(socket, address.get(), &address.length) != 0) return {};
  return from_kernel(address.get());
}

}  // namespace wideep::transport
