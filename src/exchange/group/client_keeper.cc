// SPDX-License-Identifier: Apache-2.0
//
// A connection is accepted here and passed on with a copy of its descriptor; the keeper's own copy
// keeps it open when a front dies. Where descriptors run out, accept() would fail at once and
// again, so it pauses and clients wait in the kernel's queue. A front that is busy gets its
// clients later, in their order.
#include "group/client_keeper.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace wideep::transport {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // without free descriptors
constexpr std::chrono::minutes kAcceptWarning{1};       // at most one warning in this time

void close_fd(int& fd) {
  if (fd != NoteSocket::kNone) ::close(std::exchange(fd, NoteSocket::kNone));
}

}  // namespace

size_t clients_for_descriptors(int num_ranks) {
  constexpr rlim_t kOthers = 64, kOfRank = 8, kOfClient = 2;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t others = kOthers + kOfRank * static_cast<rlim_t>(num_ranks);
  return static_cast<size_t>(
      std::max<rlim_t>(files.rlim_cur > others ? (files.rlim_cur - others) / kOfClient : 0, 1));
}

ClientKeeper::ClientKeeper(int listener, std::function<Result<int>(int socket)> companion,
                           int num_ranks, size_t max_clients)
    : listener_(listener),
      companion_(std::move(companion)),
      max_clients_(std::min(max_clients, clients_for_descriptors(num_ranks))),
      is_by_descriptors_(max_clients_ < max_clients) {
  if (listener_ < 0 || !is_by_descriptors_) return;
  log::warn(
      "http: the limit of open files leaves room for {} client{} at a time, not {}; more wait "
      "(raise ulimit -n)",
      max_clients_, max_clients_ == 1 ? "" : "s", max_clients);
}

void ClientKeeper::begin(NoteSocket notes) {
  notes_ = std::move(notes);
  accepts_ = false;
  waiting_ = 0;
  for (auto& [id, client] : clients_) client.is_passed_on = true;
}

std::vector<HeldConnections::Held> ClientKeeper::held() const {
  std::vector<HeldConnections::Held> held;
  for (const auto& [id, client] : clients_) held.push_back({id, client.socket, client.companion});
  return held;
}

void ClientKeeper::forget() {
  notes_ = NoteSocket();
  for (auto& [id, client] : clients_) {
    close_fd(client.socket);
    close_fd(client.companion);
  }
}

void ClientKeeper::add_descriptors(std::vector<pollfd>* fds) const {
  if (notes_.fd() < 0) return;
  const short writable = waiting_ > 0 ? POLLOUT : 0;
  fds->push_back({notes_.fd(), static_cast<short>(POLLIN | writable), 0});
  if (accepts_ && Clock::now() >= accept_after_) fds->push_back({listener_, POLLIN, 0});
}

std::optional<ClientKeeper::Clock::time_point> ClientKeeper::next_deadline() const {
  return accept_after_ > Clock::now() ? std::optional(accept_after_) : std::nullopt;
}

void ClientKeeper::take_notes() {
  Note note;
  while (notes_.fd() >= 0 && notes_.receive(&note, false) == NoteSocket::Got::kNote) {
    if (note.kind == Note::Kind::kAccept) accepts_ = listener_ >= 0;
    if (note.kind != Note::Kind::kDrop) continue;
    const auto client = clients_.extract(note.value);
    if (client.empty()) continue;
    close_fd(client.mapped().socket);
    close_fd(client.mapped().companion);
  }
}

void ClientKeeper::accept() {
  if (waiting_ > 0) pass_on();
  while (accepts_ && Clock::now() >= accept_after_) {
    if (clients_.size() >= max_clients_) return pause(is_by_descriptors_ ? EMFILE : 0);
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      if (is_full) pause(errno);
      if (is_full || errno == EAGAIN || errno == EWOULDBLOCK) return;
      continue;  // a client that has left again
    }
    Client client{.socket = socket};
    if (companion_) {
      // Without a companion the client is served too; its connection just ends with the front.
      const Result<int> made = companion_(socket);
      client.companion = made.ok() ? *made : NoteSocket::kNone;
    }
    clients_[next_++] = client;
    ++waiting_;
    pass_on();
  }
}

// Clients that come now wait in the kernel's queue. error: 0: as many are there as may be.
void ClientKeeper::pause(int error) {
  const auto now = Clock::now();
  accept_after_ = now + kAcceptPause;
  if (warned_at_ && now < *warned_at_ + kAcceptWarning) return;
  warned_at_ = now;
  if (error == 0) {
    log::warn("http: {} clients are connected; new ones wait (raise --max-connections)",
              clients_.size());
  } else {
    log::warn("http: cannot accept a connection: {}; new ones wait (raise ulimit -n)",
              std::strerror(error));
  }
}

// In the order in which they came; a front that is busy gets them later.
void ClientKeeper::pass_on() {
  auto client =
      std::prev(clients_.end(), static_cast<std::ptrdiff_t>(std::min(waiting_, clients_.size())));
  for (; client != clients_.end(); ++client) {
    auto& [id, held] = *client;
    if (held.is_passed_on) continue;
    if (!notes_.send({.kind = Note::Kind::kHeld, .value = id}, {held.socket, held.companion})) {
      return;
    }
    held.is_passed_on = true;
    --waiting_;
  }
}

}  // namespace wideep::transport
