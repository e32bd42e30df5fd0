// SPDX-License-Identifier: Apache-2.0
//
// Bytes on a connection to a rank's port: of a stranger, or, after a right greeting, of a rank.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "transport/tcp_link.h"

namespace {

using namespace wideep::transport;

struct Port {
  int listener = *listen_on(*resolve("127.0.0.1", 0));
  PeerAddress address = local_address(listener);
};

// What a rank says first, as it comes on the wire.
std::string record_greeting(const TcpLink::Place& place) {
  const Port port;
  TcpLink link(port.listener, place, std::vector{port.address, port.address});
  link.send(1, {});
  std::array<char, 4096> bytes;
  const int socket = ::accept(port.listener, nullptr, nullptr);
  while (!link.has_sent_all()) {
  }
  const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), 0);
  ::close(socket);
  ::close(port.listener);
  constexpr size_t kLength = 8;  // of the empty message
  return {bytes.data(), static_cast<size_t>(count) - kLength};
}

}  // namespace

// data: whether a greeting comes first, then the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBytes = 64 << 10;  // what the kernel takes at once
  if (size == 0 || size > kMaxBytes) return 0;
  static const Port port;
  const TcpLink::Place place{.service = 7, .epoch = 1, .rank = 0, .key = ClusterKey("of links")};
  static const std::string greeting = record_greeting(place);
  TcpLink link(port.listener, {.service = 7, .epoch = 1, .rank = 1, .key = place.key},
               std::vector{port.address, port.address});
  const int socket = *connect_to(port.address, std::chrono::seconds(1));
  std::string bytes = data[0] % 2 == 0 ? "" : greeting;
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) std::abort();
  ::close(socket);
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) {
    while (const auto received = link.receive()) {
      if (data[0] % 2 == 0) std::abort();  // no stranger can make the proof
    }
  }
  return 0;
}
