// SPDX-License-Identifier: Apache-2.0
//
// Sockets between processes of one machine: their names, which are in no folder, and descriptors
// that are sent over them (unix(7)).
//
// Thread safety: functions without state.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string>

namespace wideep::transport {

// A name of the abstract namespace, which every process of the network namespace can connect to.
struct LocalAddress {
  sockaddr_un bytes = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};
// REQUIRES: a name of at most 100 bytes.
LocalAddress abstract_address(const std::string& name);

// All of the bytes as one message, with the descriptor; −1: without one. False: errno says why.
bool send_with_descriptor(int socket, std::span<const std::byte> bytes, int fd);
// As recvmsg(); fd: −1 if none came; else it is the caller's, and is closed by exec.
ssize_t receive_with_descriptor(int socket, std::span<std::byte> into, int* fd, int flags = 0);

}  // namespace wideep::transport
