// SPDX-License-Identifier: Apache-2.0
//
// Both sides prove the key over the other's fresh nonce, each with a word of its own, so that
// neither proof can be sent back as the other. An arrival is a small state that takes what bytes
// have come, because one that says nothing must not hold the keeper. The pipes of a rank need only
// one message: they are proved by a serial number that is used once.
#include "group/node_handshake.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace wideep::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{1'000};
// Meanwhile this node says nothing to the service, which waits kNodePatience for a word.
constexpr milliseconds kPipesTimeout{300};
constexpr int kMaxAtOnce = 16;  // connections, before the keeper does other things again
constexpr milliseconds kLateCheck{1'000};
constexpr milliseconds kAcceptPause{100};       // without free descriptors
constexpr std::chrono::seconds kWarnEvery{10};  // at most

// Of a value that has arrived in part. False: the connection has ended.
template <typename T>
bool receive_part(int socket, T* value, size_t* received) {
  const ssize_t count = ::recv(socket, reinterpret_cast<char*>(value) + *received,
                               sizeof(T) - *received, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  *received += static_cast<size_t>(count);
  return count > 0;
}

// These few bytes always fit into the buffer of a new connection.
template <typename T>
bool send_whole(int socket, const T& value) {
  const std::string_view bytes = memory_of(value);
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

// Waits for the value. False: the connection has ended.
template <typename T>
bool receive_whole(int socket, T* value, const std::function<void()>& is_late) {
  for (size_t received = 0; received < sizeof(T);) {
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(kLateCheck.count())) == 0) is_late();
    if (!receive_part(socket, value, &received)) return false;
  }
  return true;
}

std::string both(const Greeting& greeting, const Challenge& challenge) {
  return std::string(memory_of(greeting)) + std::string(memory_of(challenge));
}

// Closes the socket unless it is released.
class Closed {
 public:
  explicit Closed(int socket) : socket_(socket) {}
  ~Closed() {
    if (socket_ >= 0) ::close(socket_);
  }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;
  int get() const { return socket_; }
  int release() { return std::exchange(socket_, -1); }

 private:
  int socket_;
};

}  // namespace

Digest proof_of_node(const ClusterKey& key, const Greeting& greeting, const Challenge& challenge) {
  return key.prove("wideep node", both(greeting, challenge));
}

Digest proof_of_service(const ClusterKey& key, const Greeting& greeting,
                        const Challenge& challenge) {
  return key.prove("wideep service", both(greeting, challenge));
}

Digest proof_of_pipes(const ClusterKey& key, const Greeting::Who& who) {
  return key.prove("wideep pipes", memory_of(who));
}

// ---- who connects ----

Result<int> connect_as_node(const PeerAddress& service, const ClusterKey& key, int node,
                            const std::function<void()>& is_late) {
  WIDEEP_TRY_ASSIGN(const int connected, connect_to(service, kConnectTimeout));
  Closed socket(connected);
  set_keep_alive(socket.get());
  const Greeting greeting{.who = {.kind = Greeting::Kind::kNode, .node = node},
                          .digest = fresh_nonce()};
  Challenge challenge;
  Digest proof;
  const auto is_closed = [&] {
    return failed(
        fmt::format("{} has closed the connection: give all nodes the same "
                    "--cluster-key-file, and the same version of wideep",
                    service.text()));
  };
  if (!send_whole(socket.get(), greeting) || !receive_whole(socket.get(), &challenge, is_late)) {
    return is_closed();
  }
  if (challenge.magic != Challenge::kMagic) {
    return failed(fmt::format("what listens on {} is no wideep service", service.text()));
  }
  if (!send_whole(socket.get(), proof_of_node(key, greeting, challenge)) ||
      !receive_whole(socket.get(), &proof, is_late)) {
    return is_closed();
  }
  if (!is_same(proof, proof_of_service(key, greeting, challenge))) {
    return failed(
        fmt::format("what listens on {} does not have this node's key: give all nodes "
                    "the same --cluster-key-file",
                    service.text()));
  }
  return socket.release();
}

Result<int> connect_for_pipes(const PeerAddress& service, const ClusterKey& key,
                              const Greeting::Who& who) {
  WIDEEP_TRY_ASSIGN(const int connected, connect_to(service, kPipesTimeout));
  Closed socket(connected);
  if (send_whole(socket.get(), Greeting{.who = who, .digest = proof_of_pipes(key, who)})) {
    return socket.release();
  }
  return failed("the connection has ended");
}

// ---- the service ----

void NodeArrivals::forget() {
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  for (const Arrival& each : waiting_) ::close(each.socket);
  waiting_.clear();
}

void NodeArrivals::add_descriptors(std::vector<pollfd>* fds) const {
  if (Clock::now() >= accept_after_) fds->push_back({listener_, POLLIN, 0});
  for (const Arrival& each : waiting_) fds->push_back({each.socket, POLLIN, 0});
}

// Without free descriptors accept() fails at once and again: then new ones wait in the kernel.
void NodeArrivals::accept_some() {
  for (int left = kMaxAtOnce; left > 0 && Clock::now() >= accept_after_; --left) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_after_ = Clock::now() + kAcceptPause;
      return;
    }
    set_options_between_nodes(socket);
    set_keep_alive(socket);
    if (waiting_.size() >= max_) make_room();
    waiting_.push_back({.socket = socket,
                        .host = remote_address(socket).host,
                        .since = Clock::now(),
                        .greeting = {},
                        .challenge = {}});
  }
}

// The oldest of the machine that has the most: one that connects again and again displaces itself.
void NodeArrivals::make_room() {
  const auto of_host = [&](const auto& host) {
    return std::ranges::count(waiting_, host, &Arrival::host);
  };
  const auto oldest = std::ranges::max_element(
      waiting_, {}, [&](const Arrival& each) { return of_host(each.host); });
  ::close(oldest->socket);
  waiting_.erase(oldest);
}

std::vector<NodeArrivals::Admitted> NodeArrivals::take() {
  accept_some();
  std::vector<Admitted> admitted;
  std::erase_if(waiting_, [&](Arrival& each) {
    const Outcome outcome = advance(each);
    if (outcome == Outcome::kAdmitted) admitted.push_back({each.socket, each.greeting.who});
    if (outcome == Outcome::kGone) ::close(each.socket);
    return outcome != Outcome::kWaits;
  });
  return admitted;
}

NodeArrivals::Outcome NodeArrivals::advance(Arrival& arrival) {
  const bool lives = arrival.is_challenged
                         ? receive_part(arrival.socket, &arrival.proof, &arrival.received)
                         : receive_part(arrival.socket, &arrival.greeting, &arrival.received);
  if (!lives || Clock::now() - arrival.since > kGreetingPatience) return Outcome::kGone;
  if (arrival.is_challenged) {
    return arrival.received < sizeof(arrival.proof) ? Outcome::kWaits : take_proof(arrival);
  }
  return arrival.received < sizeof(arrival.greeting) ? Outcome::kWaits : take_greeting(arrival);
}

NodeArrivals::Outcome NodeArrivals::take_greeting(Arrival& arrival) {
  const Greeting& greeting = arrival.greeting;
  if (greeting.who.magic != Greeting::kMagic) return Outcome::kGone;
  if (greeting.who.kind == Greeting::Kind::kPipes) {
    const bool is_right = greeting.who.service == service_ &&
                          is_same(greeting.digest, proof_of_pipes(key_, greeting.who));
    return is_right ? Outcome::kAdmitted : Outcome::kGone;
  }
  if (greeting.who.kind != Greeting::Kind::kNode) return Outcome::kGone;
  arrival.challenge.nonce = fresh_nonce();
  arrival.is_challenged = true;
  arrival.received = 0;
  return send_whole(arrival.socket, arrival.challenge) ? Outcome::kWaits : Outcome::kGone;
}

NodeArrivals::Outcome NodeArrivals::take_proof(const Arrival& arrival) {
  if (!is_same(arrival.proof, proof_of_node(key_, arrival.greeting, arrival.challenge))) {
    warn_of(arrival);
    return Outcome::kGone;
  }
  const Digest own = proof_of_service(key_, arrival.greeting, arrival.challenge);
  return send_whole(arrival.socket, own) ? Outcome::kAdmitted : Outcome::kGone;
}

// A node with another key, or a stranger, who must not fill the log.
void NodeArrivals::warn_of(const Arrival& arrival) {
  ++num_unproved_;
  if (warned_at_ && Clock::now() < *warned_at_ + kWarnEvery) return;
  warned_at_ = Clock::now();
  log::warn(
      "node port: {} connection{} without the cluster's key ({}) closed; give all nodes the same "
      "--cluster-key-file",
      num_unproved_, num_unproved_ == 1 ? "" : "s", remote_address(arrival.socket).text());
  num_unproved_ = 0;
}

}  // namespace wideep::transport
