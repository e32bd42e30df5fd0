// SPDX-License-Identifier: Apache-2.0
#include "transport/node_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
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

// Who connects says at once who it is.
constexpr milliseconds kGreetingPatience{2'000};
constexpr std::chrono::seconds kLineInterval{10};

}  // namespace

NodeServer::NodeServer(int listener, int num_nodes)
    : listener_(listener), nodes_(static_cast<size_t>(num_nodes)), next_pulse_(Clock::now()) {
  if (::getrandom(&service_, sizeof(service_), 0) != sizeof(service_)) {
    service_ = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  }
}

Result<std::unique_ptr<NodeServer>> NodeServer::listen(const PeerAddress& address, int num_nodes) {
  WIDEEP_TRY_ASSIGN(const int listener, listen_on(address));
  return std::unique_ptr<NodeServer>(new NodeServer(listener, num_nodes));
}

NodeServer::~NodeServer() { forget(); }

void NodeServer::forget() {
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  for (const Arrival& each : arrivals_) ::close(each.socket);
  arrivals_.clear();
  for (Node& each : nodes_) each = Node();
  for (const Event& each : events_) {
    if (each.socket >= 0) ::close(each.socket);
  }
  events_.clear();
}

Result<std::vector<uint64_t>> NodeServer::agree_on(
    const std::vector<uint64_t>& own, const std::function<void(const std::string&)>& line) {
  at(0).numbers = own;
  auto next_line = Clock::now() + kLineInterval / 10;
  const auto is_missing = [](const Node& each) { return each.numbers.empty(); };
  while (std::ranges::any_of(nodes_, is_missing)) {
    std::vector<pollfd> fds;
    add_descriptors(&fds);
    ::poll(fds.data(), fds.size(), static_cast<int>(kPulseInterval.count()));
    look();
    events_.clear();  // nodes that have gone again may come back
    if (Clock::now() < next_line) continue;
    next_line = Clock::now() + kLineInterval;
    std::vector<int> missing;
    for (size_t node = 1; node < nodes_.size(); ++node) {
      if (is_missing(nodes_[node])) missing.push_back(static_cast<int>(node));
    }
    line(fmt::format("waiting on {} for node{} {}", address().text(),
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  }
  least_ = own;
  for (const Node& each : nodes_) {
    for (size_t i = 0; i < least_.size() && i < each.numbers.size(); ++i) {
      least_[i] = std::min(least_[i], each.numbers[i]);
    }
  }
  for (size_t node = 1; node < nodes_.size(); ++node) welcome(static_cast<int>(node));
  return least_;
}

// ---- connections ----

void NodeServer::add_descriptors(std::vector<pollfd>* fds) const {
  fds->push_back({listener_, POLLIN, 0});
  for (const Arrival& each : arrivals_) fds->push_back({each.socket, POLLIN, 0});
  for (const Node& each : nodes_) {
    if (each.state == State::kAbsent) continue;
    const short writes = each.stream.has_unsent() ? POLLOUT : 0;
    fds->push_back({each.stream.socket(), static_cast<short>(POLLIN | writes), 0});
  }
}

std::optional<NodeServer::Event> NodeServer::next_event() {
  if (events_.empty()) look();
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void NodeServer::look() {
  accept_all();
  take_arrivals();
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const int node = static_cast<int>(i);
    Node& each = nodes_[i];
    if (each.state == State::kAbsent) continue;
    each.stream.write();
    while (auto message = each.stream.next()) {
      take(node, std::move(*message));
      if (each.state == State::kAbsent) break;
    }
    if (each.state == State::kAbsent) continue;
    // Before it is up, it may be busy with its files; the connection ends if it ends.
    const bool is_silent =
        each.state == State::kUp && Clock::now() - each.stream.heard_at() > kNodePatience;
    if (each.stream.is_broken()) {
      drop(node, "its connection has ended");
    } else if (is_silent) {
      drop(node, fmt::format("it was silent for {} ms", kNodePatience.count()));
    }
  }
  pulse();
}

void NodeServer::accept_all() {
  for (;;) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0 && errno == EINTR) continue;
    if (socket < 0) return;
    set_options_between_nodes(socket);
    arrivals_.push_back({.socket = socket, .greeting = {}, .received = 0, .since = Clock::now()});
  }
}

void NodeServer::take_arrivals() {
  std::erase_if(arrivals_, [&](Arrival& each) {
    auto* bytes = reinterpret_cast<char*>(&each.greeting);
    const ssize_t count = ::recv(each.socket, bytes + each.received,
                                 sizeof(each.greeting) - each.received, MSG_DONTWAIT);
    const bool waits = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (count > 0) each.received += static_cast<size_t>(count);
    if (each.received == sizeof(each.greeting)) {
      take(each);
      return true;
    }
    if (count > 0 || (waits && Clock::now() - each.since < kGreetingPatience)) return false;
    ::close(each.socket);
    return true;
  });
}

void NodeServer::take(const Arrival& arrival) {
  const Greeting& greeting = arrival.greeting;
  const bool is_known = greeting.magic == Greeting::kMagic && greeting.node > 0 &&
                        static_cast<size_t>(greeting.node) < nodes_.size();
  if (!is_known) {
    if (greeting.magic == Greeting::kMagic) {
      NodeStream stream(arrival.socket);
      stream.send(
          {.kind = NodeMessage::Kind::kRefused,
           .text = fmt::format("--node-rank: expected 1 to {}, as the service has {} nodes, "
                               "found {}",
                               nodes_.size() - 1, nodes_.size(), greeting.node)});
    } else {
      ::close(arrival.socket);
    }
    return;
  }
  if (greeting.kind == Greeting::Kind::kPipes) {
    if (greeting.service != service_) {
      ::close(arrival.socket);
      return;
    }
    ::fcntl(arrival.socket, F_SETFL, ::fcntl(arrival.socket, F_GETFL) & ~O_NONBLOCK);
    events_.push_back({.kind = Event::Kind::kPipes,
                       .node = greeting.node,
                       .socket = arrival.socket,
                       .message = {.rank = greeting.rank, .value = greeting.serial}});
    return;
  }
  if (at(greeting.node).state != State::kAbsent) drop(greeting.node, "it has connected again");
  Node& node = at(greeting.node);
  node.stream = NodeStream(arrival.socket);
  node.state = State::kGreeted;
}

void NodeServer::take(int node, NodeMessage message) {
  Node& from = at(node);
  using Kind = NodeMessage::Kind;
  if (message.kind == Kind::kPulse) return;
  if (message.kind == Kind::kNumbers && from.state == State::kGreeted) {
    from.numbers = std::move(message.numbers);
    if (!least_.empty()) welcome(node);
  } else if (message.kind == Kind::kSettings && from.state == State::kWelcomed) {
    if (!settings_) return drop(node, "it came too early");
    const Status same =
        check_settings_match(*settings_, settings_from(message.text), node, "nodes");
    if (!same.ok()) return refuse(node, same);
    from.state = State::kAccepted;
  } else if (message.kind == Kind::kUp && from.state == State::kAccepted) {
    from.state = State::kUp;
    events_.push_back({.kind = Event::Kind::kUp, .node = node});
  } else if (from.state == State::kUp) {
    events_.push_back({.kind = Event::Kind::kMessage, .node = node, .message = std::move(message)});
  }
}

// What a node can have depends on its free memory, of which it takes a part only (RunOptions::
// cache_share): one that comes later may have a little less than the others and still keep up.
void NodeServer::welcome(int node) {
  Node& to = at(node);
  for (size_t i = 0; i < least_.size() && i < to.numbers.size(); ++i) {
    if (2 * to.numbers[i] >= least_[i]) continue;
    return refuse(node, failed(fmt::format(
                            "node {} has memory for {} pages of the KV cache or states, and the "
                            "others have {}: free some, or set kv_cache_config.max_tokens",
                            node, to.numbers[i], least_[i])));
  }
  std::vector<uint64_t> numbers = {service_};
  numbers.insert(numbers.end(), least_.begin(), least_.end());
  to.stream.send({.kind = NodeMessage::Kind::kWelcome, .numbers = std::move(numbers)});
  to.state = State::kWelcomed;
}

void NodeServer::refuse(int node, const Status& why) {
  log::warn("node {}: {}", node, why.message());
  at(node).stream.send({.kind = NodeMessage::Kind::kRefused, .text = why.message()});
  drop(node, why.message());
}

void NodeServer::send(int node, const NodeMessage& message) { at(node).stream.send(message); }

void NodeServer::send_all(const NodeMessage& message) {
  for (Node& each : nodes_) {
    if (each.state == State::kUp) each.stream.send(message);
  }
}

void NodeServer::finish() {
  for (Node& each : nodes_) {
    const bool listens = each.state == State::kWelcomed || each.state == State::kAccepted ||
                         each.state == State::kUp;
    if (listens) each.stream.send({.kind = NodeMessage::Kind::kFinished});
  }
}

void NodeServer::drop(int node, const std::string& why) {
  Node& gone = at(node);
  const bool was_up = gone.state == State::kUp;
  gone = Node();
  if (was_up) events_.push_back({.kind = Event::Kind::kDown, .node = node, .why = why});
}

void NodeServer::pulse() {
  if (Clock::now() < next_pulse_) return;
  next_pulse_ = Clock::now() + kPulseInterval;
  for (Node& each : nodes_) {
    if (each.state == State::kAccepted || each.state == State::kUp) {
      each.stream.send({.kind = NodeMessage::Kind::kPulse});
    }
  }
}

}  // namespace wideep::transport
