// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets between nodes.
//
// Thread safety: plain values; functions without state.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "wideep/status.h"

namespace wideep::transport {

// Where a socket listens; IPv4 or IPv6. In shared memory and in messages as it lies in memory.
struct PeerAddress {
  std::array<uint8_t, 16> host = {};  // 4 bytes of an IPv4 address, or 16
  uint16_t port = 0;                  // 0: nowhere
  bool is_v6 = false;

  bool is_loopback() const;  // 127.0.0.0/8, ::1
  std::string text() const;  // "10.0.0.1:29500", "[fe80::1]:29500"
  bool operator==(const PeerAddress&) const = default;
};

// As PeerAddress::text() writes it. Errors (invalid input).
Result<PeerAddress> parse_address(const std::string& text);
// host: a name or a number. Errors (invalid input): the name is not known.
Result<PeerAddress> resolve(const std::string& host, int port);

// Listens without ever blocking in accept. port 0: any that is free. Errors (failed): the address
// is in use, or not of this machine.
Result<int> listen_on(const PeerAddress& address);
// Has the address without listening there, so that nobody else gets it meanwhile: listen_on() the
// same address still works, in this process or another, one after the other. Errors: as above.
Result<int> reserve_address(const PeerAddress& address);
// A connection that blocks, with options as below. Errors (failed): nobody listens there;
// (deadline_exceeded) no answer within the timeout.
Result<int> connect_to(const PeerAddress& address, std::chrono::milliseconds timeout);
// The same, without waiting for the answer, and never blocking. error: gets the kernel's, if there
// is one.
Result<int> begin_to_connect(const PeerAddress& address, int* error = nullptr);
// Whether the kernel's error says that the network does not lead there; otherwise somebody there
// has refused or ended the connection, or this process is at a limit.
bool is_unreachable(int error);
// Small messages leave at once, and a peer that does not acknowledge for kAcknowledgeWithin ends
// the connection.
inline constexpr std::chrono::milliseconds kAcknowledgeWithin{5'000};
void set_options_between_nodes(int socket);
// A peer whose machine is gone ends the connection though nothing is sent, after about so long,
// too.
void set_keep_alive(int socket);

// This end of a socket.
PeerAddress local_address(int socket);
PeerAddress remote_address(int socket);

}  // namespace wideep::transport
