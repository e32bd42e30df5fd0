// SPDX-License-Identifier: Apache-2.0
//
// A note is a struct of fixed size on a socket that keeps message boundaries: it comes whole or
// not at all, also from a process that is killed while it sends. The keeper never waits for a
// reader, so its notes are queued where they must arrive; processes that it has forked may wait
// for it.
#include "group/notes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace wideep::transport {

void Note::set_members(const Members& members) {
  epoch = members.epoch;
  for (const int each : members.ranks) {
    WIDEEP_CHECK(each >= 0 && each < kMaxRanks);
    ranks[static_cast<size_t>(each / 64)] |= uint64_t{1} << each % 64;
  }
}

Members Note::members() const {
  Members members{.epoch = epoch, .ranks = {}};
  for (int each = 0; each < kMaxRanks; ++each) {
    if ((ranks[static_cast<size_t>(each / 64)] >> each % 64 & 1) != 0) {
      members.ranks.push_back(each);
    }
  }
  return members;
}

void Note::set_text(std::string_view new_text) {
  text = {};
  new_text.copy(text.data(), text.size() - 1);
}

void Note::set_status(const Status& status) {
  value = static_cast<int64_t>(status.code());
  set_text(status.message());
}

Result<NoteSocket::Pair> NoteSocket::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  return Pair{NoteSocket(ends[0]), NoteSocket(ends[1])};
}

NoteSocket::~NoteSocket() {
  if (fd_ != kNone) ::close(fd_);
}

bool NoteSocket::send_surely(const Note& note) const {
  for (;;) {
    const Sent sent = try_to_send(note);
    if (sent != Sent::kFull) return sent == Sent::kYes;
    pollfd room{fd_, POLLOUT, 0};
    ::poll(&room, 1, -1);
  }
}

NoteSocket::Sent NoteSocket::try_to_send(const Note& note, std::array<int, 2> fds) const {
  Note copy = note;
  iovec bytes{&copy, sizeof(copy)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  if (fds[0] != kNone) {
    const size_t bytes_of_fds = (fds[1] == kNone ? 1 : 2) * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes_of_fds);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes_of_fds);
    std::memcpy(CMSG_DATA(header), fds.data(), bytes_of_fds);
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent == static_cast<ssize_t>(sizeof(copy))) return Sent::kYes;
    // ETOOMANYREFS: too many descriptors are under way.
    const bool is_full =
        errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS;
    return sent < 0 && is_full ? Sent::kFull : Sent::kClosed;
  }
}

NoteSocket::Got NoteSocket::receive(Note* note, bool waits, std::array<int, 2>* fds) const {
  iovec bytes{note, sizeof(*note)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count = 0;
  do {
    count = ::recvmsg(fd_, &message, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
    // ECONNRESET comes once, if the other end has died before it read all, and before what it sent.
  } while (count < 0 && (errno == EINTR || errno == ECONNRESET));
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Got::kNothing;
  if (count != static_cast<ssize_t>(sizeof(*note))) return Got::kClosed;
  std::array<int, 2> got = {kNone, kNone};
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    std::memcpy(got.data(), CMSG_DATA(header),
                std::min(sizeof(got), header->cmsg_len - CMSG_LEN(0)));
  }
  if (fds != nullptr) {
    *fds = got;
  } else {
    for (const int fd : got) {
      if (fd != kNone) ::close(fd);
    }
  }
  return Got::kNote;
}

void NoteQueue::send(const NoteSocket& to, const Note& note, std::array<int, 2> fds) {
  queue_.push_back({note, fds});
  flush(to);
}

void NoteQueue::flush(const NoteSocket& to) {
  while (!queue_.empty()) {
    const Queued& first = queue_.front();
    if (to.try_to_send(first.note, first.fds) == NoteSocket::Sent::kFull) return;
    for (const int fd : first.fds) {
      if (fd != NoteSocket::kNone) ::close(fd);
    }
    queue_.pop_front();
  }
}

void NoteQueue::clear() {
  for (const Queued& each : queue_) {
    for (const int fd : each.fds) {
      if (fd != NoteSocket::kNone) ::close(fd);
    }
  }
  queue_.clear();
}

}  // namespace wideep::transport
