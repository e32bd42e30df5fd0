// SPDX-License-Identifier: Apache-2.0
//
// Every rank listens first and then calls all lower ranks: so each pair has one socket, and nobody
// waits for one who waits for him. Both sides then know each other's terms. Only a different
// number of ranks ends the meeting at once, because then some would wait for ranks that do not
// exist; other differences are told when all are connected, or the ranks not yet met would wait
// until their deadline and learn nothing.
#include "cuda/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>

#include "base/try.h"

namespace wideep::cuda {
namespace {

constexpr size_t kMaxName = 64;
constexpr uint32_t kMaxText = 1 << 20;
constexpr std::chrono::milliseconds kBetweenTries{5};

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

// A name that begins with a zero byte is of the abstract kind.
Address address_of(const std::string& group, int occasion, int rank) {
  Address made;
  made.address.sun_family = AF_UNIX;
  const std::string name = fmt::format("wideep/{}/{}/{}", group, occasion, rank);
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

Status system_error(const std::string& where, const char* what) {
  return failed(fmt::format("{}: {}: {}", where, what, std::strerror(errno)));
}

// "rank\nnum_ranks=2\nname=value\nname=value\n"
std::string hello_of(const MeetingOptions& options) {
  std::string text = fmt::format("{}\nnum_ranks={}\n", options.rank, options.num_ranks);
  for (const auto& [name, value] : options.terms) text += fmt::format("{}={}\n", name, value);
  return text;
}

// The next line, which is taken away.
std::string_view take_line(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

int rank_in(std::string_view hello) {
  const std::string line(take_line(&hello));
  char* end = nullptr;
  const long rank = std::strtol(line.c_str(), &end, 10);
  return line.empty() || *end != '\0' || rank < 0 || rank > INT32_MAX ? -1 : static_cast<int>(rank);
}

bool is_of_this_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

// For those who read from a meeting's sockets themselves: nobody waits without an end.
void limit_waits(int socket, std::chrono::milliseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timeval limit{.tv_sec = seconds.count(),
                      .tv_usec = std::chrono::microseconds(timeout - seconds).count()};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

Status check(const MeetingOptions& options) {
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    return invalid_input(
        fmt::format("rank: expected 0 to {}, found {}", options.num_ranks - 1, options.rank));
  }
  const std::string& group = options.group;
  if (!group.empty() && group.size() <= kMaxName && group.find('\0') == std::string::npos) {
    return {};
  }
  return invalid_input(
      fmt::format("group: expected a name of 1 to {} characters, found {}: all ranks of a group "
                  "give the same name, other groups of this machine another",
                  kMaxName, group.size()));
}

}  // namespace

Meeting::Meeting(const MeetingOptions& options)
    : group_(options.group),
      rank_(options.rank),
      occasion_(options.occasion),
      absent_(options.absent),
      timeout_(options.timeout),
      end_(Clock::now() + options.timeout),
      sockets_(static_cast<size_t>(options.num_ranks), -1) {}

Meeting::Meeting(Meeting&& other) noexcept
    : group_(std::move(other.group_)),
      rank_(other.rank_),
      occasion_(other.occasion_),
      absent_(std::move(other.absent_)),
      timeout_(other.timeout_),
      end_(other.end_),
      listener_(std::exchange(other.listener_, -1)),
      sockets_(std::exchange(other.sockets_, {})),
      other_terms_(std::move(other.other_terms_)) {}

Meeting::~Meeting() {
  if (listener_ >= 0) close(listener_);
  for (const int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
}

Result<Meeting> Meeting::hold(const MeetingOptions& options) {
  WIDEEP_TRY(check(options));
  Meeting meeting(options);
  if (options.num_ranks == 1) return meeting;
  const std::string hello = hello_of(options);
  // Every rank listens first and calls the lower ones, so nobody waits for one who waits for him.
  WIDEEP_TRY(meeting.listen());
  for (int peer = 0; peer < options.rank; ++peer) {
    if (!meeting.is_absent(peer)) WIDEEP_TRY(meeting.connect_to(peer, hello));
  }
  WIDEEP_TRY(meeting.accept_all(hello));
  close(std::exchange(meeting.listener_, -1));  // the name may be used again
  for (const int socket : meeting.sockets_) {
    if (socket >= 0) limit_waits(socket, options.timeout);
  }
  WIDEEP_TRY(meeting.agree(meeting.other_terms_));
  return meeting;
}

bool Meeting::is_absent(int rank) const {
  return std::ranges::find(absent_, rank) != absent_.end();
}

Status Meeting::listen() {
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) return system_error(here(), "a local socket");
  const Address mine = address_of(group_, occasion_, rank_);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&mine.address), mine.size) != 0) {
    if (errno != EADDRINUSE) return system_error(here(), "a local socket");
    return invalid_input(fmt::format(
        "{}: this rank is joining already: expected another rank, or another name of the group",
        here()));
  }
  if (::listen(listener_, num_ranks()) != 0) return system_error(here(), "a local socket");
  return {};
}

Status Meeting::connect_to(int peer, const std::string& hello) {
  const Address theirs = address_of(group_, occasion_, peer);
  for (;;) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return system_error(here(), "a local socket");
    if (connect(socket, reinterpret_cast<const sockaddr*>(&theirs.address), theirs.size) == 0) {
      sockets_[static_cast<size_t>(peer)] = socket;
      break;
    }
    const int error = errno;
    close(socket);
    errno = error;
    if (error != ECONNREFUSED && error != EAGAIN) return system_error(here(), "a local socket");
    if (Clock::now() >= end_) return missing(peer);
    std::this_thread::sleep_for(kBetweenTries);
  }
  const int socket = sockets_[static_cast<size_t>(peer)];
  if (!is_of_this_user(socket)) {
    return failed(fmt::format("{}: rank {} is a process of another user", here(), peer));
  }
  WIDEEP_TRY(send_text(socket, hello, peer));
  WIDEEP_TRY_ASSIGN(const std::string answer, receive_text(socket, peer));
  return check_peer(peer, hello, answer);
}

Status Meeting::accept_all(const std::string& hello) {
  for (;;) {
    int next = rank_ + 1;
    while (next < num_ranks() && (is_absent(next) || sockets_[static_cast<size_t>(next)] >= 0)) {
      ++next;
    }
    if (next == num_ranks()) return {};
    WIDEEP_TRY(await_readable(listener_, next));
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return system_error(here(), "a local socket");
    if (!is_of_this_user(socket)) {
      close(socket);
      continue;
    }
    const auto greet = [&]() -> Result<int> {
      WIDEEP_TRY_ASSIGN(const std::string theirs, receive_text(socket, next));
      WIDEEP_TRY(send_text(socket, hello, next));
      const int peer = rank_in(theirs);
      WIDEEP_TRY(check_peer(peer, hello, theirs));
      if (peer <= rank_ || peer >= num_ranks() || sockets_[static_cast<size_t>(peer)] >= 0) {
        return invalid_input(fmt::format("{}: rank {} has joined twice", here(), peer));
      }
      if (is_absent(peer)) {
        return invalid_input(
            fmt::format("{}: rank {} joins, which is one of inactive_ranks here: expected the same "
                        "inactive_ranks on all ranks",
                        here(), peer));
      }
      return peer;
    };
    const Result<int> peer = greet();
    if (!peer.ok()) {
      close(socket);
      return peer.status();
    }
    sockets_[static_cast<size_t>(*peer)] = socket;
  }
}

// Ranks that expect other numbers of ranks cannot even meet. Other terms are told when all have
// met, so that every rank learns of them.
Status Meeting::check_peer(int peer, const std::string& hello, const std::string& theirs) {
  std::string_view mine_left = hello, theirs_left = theirs;
  take_line(&mine_left);
  take_line(&theirs_left);
  for (bool is_first = true; !mine_left.empty() || !theirs_left.empty(); is_first = false) {
    const std::string_view mine = take_line(&mine_left), other = take_line(&theirs_left);
    if (mine == other) continue;
    const Status differ = invalid_input(
        fmt::format("{}: {}, but rank {} has {}: expected the same options on all ranks", here(),
                    mine.empty() ? "nothing" : mine, peer, other.empty() ? "nothing" : other));
    if (is_first) return differ;
    if (other_terms_.ok()) other_terms_ = differ;
    return {};
  }
  return {};
}

Result<std::vector<std::string>> Meeting::exchange(const std::string& mine) {
  // Texts are small: a socket takes them without a reader, so all may send first.
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (socket(peer) >= 0) WIDEEP_TRY(send_text(socket(peer), mine, peer));
  }
  std::vector<std::string> all;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (socket(peer) < 0) {
      all.push_back(peer == rank_ ? mine : "");
      continue;
    }
    WIDEEP_TRY_ASSIGN(std::string theirs, receive_text(socket(peer), peer));
    all.push_back(std::move(theirs));
  }
  return all;
}

Status Meeting::agree(const Status& mine) {
  const char code = static_cast<char>('0' + static_cast<int>(mine.code()));
  Result<std::vector<std::string>> all = exchange(code + mine.message());
  WIDEEP_TRY(mine);
  if (!all.ok()) return all.status();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const std::string& theirs = (*all)[static_cast<size_t>(peer)];
    if (theirs.empty() || theirs[0] == '0') continue;
    return {static_cast<StatusCode>(theirs[0] - '0'),
            fmt::format("{}: rank {} cannot join: {}", here(), peer, theirs.substr(1))};
  }
  return {};
}

std::string Meeting::here() const { return fmt::format("group '{}', rank {}", group_, rank_); }

Status Meeting::missing(int peer) const {
  return deadline_exceeded(
      fmt::format("{}: rank {} did not join within {} ms", here(), peer, timeout_.count()));
}

Status Meeting::send_text(int socket, const std::string& text, int peer) const {
  const auto size = static_cast<uint32_t>(text.size());
  WIDEEP_TRY(send_all(socket, &size, sizeof(size), peer));
  return send_all(socket, text.data(), text.size(), peer);
}

Result<std::string> Meeting::receive_text(int socket, int peer) const {
  uint32_t size = 0;
  WIDEEP_TRY(receive_all(socket, &size, sizeof(size), peer));
  if (size > kMaxText)
    return failed(fmt::format("{}: rank {} is not a rank of wideep", here(), peer));
  std::string text(size, '\0');
  WIDEEP_TRY(receive_all(socket, text.data(), size, peer));
  return text;
}

Status Meeting::send_all(int socket, const void* data, size_t num_bytes, int peer) const {
  std::span<const char> left(static_cast<const char*>(data), num_bytes);
  while (!left.empty()) {
    const ssize_t sent = send(socket, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) return failed(fmt::format("{}: rank {} left while it joined", here(), peer));
    left = left.subspan(static_cast<size_t>(sent));
  }
  return {};
}

Status Meeting::receive_all(int socket, void* data, size_t num_bytes, int peer) const {
  std::span<char> left(static_cast<char*>(data), num_bytes);
  while (!left.empty()) {
    WIDEEP_TRY(await_readable(socket, peer));
    const ssize_t received = recv(socket, left.data(), left.size(), 0);
    if (received <= 0) return failed(fmt::format("{}: rank {} left while it joined", here(), peer));
    left = left.subspan(static_cast<size_t>(received));
  }
  return {};
}

Status Meeting::await_readable(int socket, int peer) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
    if (left.count() <= 0) return missing(peer);
    pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 30)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error(here(), "a local socket");
  }
}

}  // namespace wideep::cuda
