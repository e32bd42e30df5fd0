// SPDX-License-Identifier: Apache-2.0
#include "base/service_notifier.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/cpu_time.h"
#include "base/log.h"

namespace wideep::base {
namespace {

constexpr std::chrono::seconds kMoreTime{120};  // for a start that has just gone on
constexpr std::chrono::seconds kBetweenLines{1};

std::string take(const char* variable) {
  const char* value = std::getenv(variable);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(variable);
  return text;
}

int64_t number_in(const std::string& text) {
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? value : 0;
}

// A status is one line; a message has one value in each.
std::string line_of(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace

ServiceNotifier ServiceNotifier::take_from_environment() {
  std::string address = take("NOTIFY_SOCKET");
  const int64_t watchdog = number_in(take("WATCHDOG_USEC"));
  const std::string watched = take("WATCHDOG_PID");
  if (address.empty()) return {};
  if (address[0] == '@') address[0] = '\0';
  // systemd has others, for machines of their own (vsock:).
  if ((address[0] != '/' && address[0] != '\0') ||
      address.size() >= sizeof(sockaddr_un::sun_path)) {
    log::warn(
        "NOTIFY_SOCKET: expected a path or @name of a Unix socket of less than {} bytes; the "
        "service manager is told nothing",
        sizeof(sockaddr_un::sun_path));
    return {};
  }
  const bool is_watched = watchdog > 0 && (watched.empty() || number_in(watched) == ::getpid());
  return {std::move(address), std::chrono::microseconds(is_watched ? watchdog : 0)};
}

ServiceNotifier::ServiceNotifier(std::string address, std::chrono::microseconds watchdog)
    : address_(std::move(address)),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      watchdog_(watchdog) {}

ServiceNotifier::ServiceNotifier(ServiceNotifier&& other) noexcept
    : address_(std::move(other.address_)),
      socket_(std::exchange(other.socket_, -1)),
      watchdog_(other.watchdog_) {}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ >= 0) ::close(socket_);
}

// False: only for want of room, which there may be later.
bool ServiceNotifier::send(std::string_view message) const {
  if (socket_ < 0) return true;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size() +
                             (address_[0] == '\0' ? 0 : 1));  // a path ends with NUL
  const ssize_t sent = ::sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), length);
  return sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS);
}

bool ServiceNotifier::is_due(std::atomic<int64_t>* next, std::chrono::nanoseconds interval) {
  const int64_t now = base::wall_ns();
  int64_t due = next->load();
  return now >= due && next->compare_exchange_strong(due, now + interval.count());
}

void ServiceNotifier::loading(std::string_view text) const {
  if (socket_ < 0 || !is_due(&next_loading_, kBetweenLines)) return;
  send(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}", line_of(text),
                   std::chrono::microseconds(kMoreTime).count()));
}

void ServiceNotifier::ready(std::string_view text) const {
  if (socket_ < 0) return;
  is_unheard_ = !send(fmt::format("READY=1\nSTATUS={}", line_of(text)));
}

void ServiceNotifier::status(std::string_view text) const {
  if (socket_ < 0) return;
  send(fmt::format("STATUS={}", line_of(text)));
}

void ServiceNotifier::stopping(std::string_view text, std::chrono::milliseconds most) const {
  if (socket_ < 0) return;
  send(fmt::format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}", line_of(text),
                   std::chrono::microseconds(most).count()));
}

void ServiceNotifier::alive() const {
  if (socket_ < 0) return;
  if (is_unheard_ && send("READY=1")) is_unheard_ = false;
  if (watchdog_.count() == 0 || !is_due(&next_alive_, watchdog_ / 4)) return;
  send("WATCHDOG=1");
}

}  // namespace wideep::base
