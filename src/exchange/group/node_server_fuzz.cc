// SPDX-License-Identifier: Apache-2.0
//
// Bytes on a connection to the port of a service: of a stranger, or of a node that has proved the
// key. The same bytes as a node takes them of its service: lengths, members, settings.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "group/node_server.h"

namespace {

using namespace wideep::transport;

const ClusterKey& key() {
  static const ClusterKey secret("a secret of the cluster");
  return secret;
}

void send(int socket, std::string_view bytes) {
  if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) std::abort();
}

// Becomes node 1; false: the server has not answered.
bool prove(int socket, NodeServer& server) {
  const Greeting greeting{.who = {.node = 1}, .digest = fresh_nonce()};
  send(socket, memory_of(greeting));
  Challenge challenge;
  ssize_t count = -1;
  for (int i = 0; i < 1000 && count != sizeof(challenge); ++i) {
    server.next_event();
    count = ::recv(socket, &challenge, sizeof(challenge), MSG_DONTWAIT);
  }
  if (count != sizeof(challenge)) return false;
  send(socket, memory_of(proof_of_node(key(), greeting, challenge)));
  return true;
}

void take_as_a_node(std::string_view bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  NodeStream stream(ends[0]);
  send(ends[1], bytes);
  ::close(ends[1]);
  while (const auto message = stream.next()) {
    constexpr size_t kNumRanks = 8;
    const auto members = message->members(kNumRanks);
    if (members && (members->ranks.size() > kNumRanks || members->ranks.back() >= 8)) std::abort();
    if (message->addresses(kNumRanks).size() != kNumRanks) std::abort();
  }
}

}  // namespace

// data: whether the node proves itself first, then its bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBytes = 64 << 10;  // what the kernel takes at once
  if (size < 2 || size > kMaxBytes) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  take_as_a_node(bytes);
  static const auto server = [] {
    auto made = std::move(*NodeServer::listen(*resolve("127.0.0.1", 0), 2, key()));
    made->set_settings({{"model", "a"}});
    return made;
  }();
  const int socket = *connect_to(server->address(), std::chrono::seconds(1));
  if (data[0] % 2 != 0 && !prove(socket, *server)) std::abort();
  send(socket, bytes);
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) {
    while (const auto event = server->next_event()) {
      if (event->socket >= 0) ::close(event->socket);
      if (data[0] % 2 == 0) std::abort();  // of a stranger nothing follows
    }
  }
  ::close(socket);
  server->drop(1, "its turn is over");
  while (server->next_event()) {
  }
  return 0;
}
