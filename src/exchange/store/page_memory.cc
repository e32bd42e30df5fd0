// SPDX-License-Identifier: Apache-2.0
#include "store/page_memory.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "base/printable.h"
#include "base/random_hex.h"
#include "store/redis_connection.h"
#include "transport/local_socket.h"

namespace wideep::store {
namespace {

constexpr std::string_view kGiven = "+MEMORY ";
constexpr int kWaiting = 64;  // connections that are not accepted yet

struct LocalSocket {
  explicit LocalSocket(int type) : fd(::socket(AF_UNIX, type | SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~LocalSocket() {
    if (fd >= 0) ::close(fd);
  }
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  int fd;
};

// Takes the descriptor.
Result<base::SharedBytes> map_given(std::string_view answer, int fd) {
  size_t bytes = 0;
  const std::string_view number = answer.substr(kGiven.size());
  std::from_chars(number.data(), number.data() + number.size(), bytes);
  struct stat file{};
  // What is behind the end of a file would be a signal at the first touch.
  const bool is_whole =
      ::fstat(fd, &file) == 0 && bytes > 0 && static_cast<uint64_t>(file.st_size) >= bytes;
  if (is_whole) return base::SharedBytes::adopt("memory of a peer", fd, bytes, /*huge=*/false);
  ::close(fd);
  return failed("memory of a peer: not as large as it says");
}

}  // namespace

std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot(std::istreambuf_iterator<char>(file), {});
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  std::array<char, 64> processes{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", processes.data(), processes.size());
  if (boot.empty() || length <= 0) return {};
  return fmt::format("{} {}", boot,
                     std::string_view(processes.data(), static_cast<size_t>(length)));
}

int listen_for_memory(std::string& name) {
  name = fmt::format("wideep-pages-{}", base::random_hex(16));
  const transport::LocalAddress address = transport::abstract_address(name);
  LocalSocket socket(SOCK_NONBLOCK);
  if (socket.fd < 0 || ::bind(socket.fd, address.get(), address.length) != 0 ||
      ::listen(socket.fd, kWaiting) != 0) {
    return -1;
  }
  return std::exchange(socket.fd, -1);
}

bool is_of_this_user(int fd) {
  ucred who{};
  socklen_t length = sizeof(who);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == ::geteuid();
}

bool send_memory(int fd, const base::SharedBytes& memory) {
  const std::string answer = fmt::format("{}{}\r\n", kGiven, memory.size());
  return transport::send_with_descriptor(fd, std::as_bytes(std::span(answer)), memory.fd());
}

Result<base::SharedBytes> take_memory(const std::string& name, std::string_view record_class,
                                      std::string_view token, std::chrono::milliseconds timeout) {
  const auto refused = [](std::string_view why) {
    return failed(fmt::format("memory of a peer: {}", why));
  };
  if (name.empty() || name.size() > 100) return refused("it has no name");
  const transport::LocalAddress address = transport::abstract_address(name);
  const LocalSocket socket(SOCK_NONBLOCK);
  std::string enter;
  append_command(enter, {"AUTH", record_class, token});
  // Neither waits for the server: the kernel takes the connection and the few bytes, or refuses.
  if (socket.fd < 0 || ::connect(socket.fd, address.get(), address.length) != 0 ||
      !is_of_this_user(socket.fd) ||
      ::send(socket.fd, enter.data(), enter.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(enter.size())) {
    return refused(std::strerror(errno));
  }
  pollfd ready{socket.fd, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(timeout.count())) <= 0) {
    return deadline_exceeded("memory of a peer: no answer in time");
  }
  std::array<char, 512> bytes{};
  int fd = -1;
  const ssize_t count =
      transport::receive_with_descriptor(socket.fd, std::as_writable_bytes(std::span(bytes)), &fd);
  const std::string_view answer(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (fd >= 0 && answer.starts_with(kGiven)) return map_given(answer, fd);
  if (fd >= 0) ::close(fd);
  return refused(base::printable(answer, 200));
}

}  // namespace wideep::store
