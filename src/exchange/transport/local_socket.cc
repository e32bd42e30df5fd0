// SPDX-License-Identifier: Apache-2.0
#include "transport/local_socket.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace wideep::transport {

LocalAddress abstract_address(const std::string& name) {
  WIDEEP_CHECK(name.size() <= 100);
  LocalAddress address;
  address.bytes.sun_family = AF_UNIX;
  // A leading 0 byte puts the name into the abstract namespace.
  std::copy(name.begin(), name.end(), address.bytes.sun_path + 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// The kernel passes the descriptor as ancillary data of the message (SCM_RIGHTS).
bool send_with_descriptor(int socket, std::span<const std::byte> bytes, int fd) {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

ssize_t receive_with_descriptor(int socket, std::span<std::byte> into, int* fd, int flags) {
  iovec data{into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  *fd = -1;
  const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  const cmsghdr* header = count >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    std::memcpy(fd, CMSG_DATA(header), sizeof(*fd));
  }
  return count;
}

}  // namespace wideep::transport
