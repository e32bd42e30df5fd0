// SPDX-License-Identifier: Apache-2.0
//
// A node is in one of five states, and each kind of message is taken in one state only; anything
// else is dropped. So a node cannot be up before its settings were compared, whatever it sends.
// Nodes are read before arrivals are taken: one whose connection has ended makes room for its next
// one. What a node says is limited in number each time and in length in the log.
#include "group/node_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/try.h"

namespace wideep::transport {
namespace {

constexpr std::chrono::seconds kLineInterval{10};
// Of a node, before the keeper does other things again.
constexpr int kMaxMessagesAtOnce = 64;
// Of a node's words in a line of the log.
constexpr size_t kMaxShown = 512;

// A number that nobody can guess.
uint64_t fresh_number() {
  const Digest nonce = fresh_nonce();
  uint64_t number = 0;
  std::memcpy(&number, nonce.data(), sizeof(number));
  return number;
}

}  // namespace

NodeServer::NodeServer(int listener, int num_nodes, const ClusterKey& key)
    : service_(fresh_number()),
      has_key_(key.is_set()),
      arrivals_(listener, key, service_, static_cast<size_t>(num_nodes)),
      nodes_(static_cast<size_t>(num_nodes)),
      next_pulse_(Clock::now()) {}

Result<std::unique_ptr<NodeServer>> NodeServer::listen(const PeerAddress& address, int num_nodes,
                                                       const ClusterKey& key) {
  WIDEEP_TRY_ASSIGN(const int listener, listen_on(address));
  return std::unique_ptr<NodeServer>(new NodeServer(listener, num_nodes, key));
}

NodeServer::~NodeServer() { forget(); }

void NodeServer::forget() {
  arrivals_.forget();
  for (Node& each : nodes_) each = Node();
  clear_events();
}

void NodeServer::clear_events() {
  for (const Event& each : events_) {
    if (each.socket >= 0) ::close(each.socket);
  }
  events_.clear();
}

Result<std::vector<uint64_t>> NodeServer::agree_on(
    int num_needed, const std::vector<uint64_t>& own,
    const std::function<void(const std::string&)>& line) {
  at(0).numbers = own;
  auto next_line = Clock::now() + kLineInterval / 10;
  const auto is_missing = [](const Node& each) { return each.numbers.empty(); };
  const auto needed = std::span(nodes_).first(static_cast<size_t>(num_needed));
  while (std::ranges::any_of(needed, is_missing)) {
    std::vector<pollfd> fds;
    add_descriptors(&fds);
    ::poll(fds.data(), fds.size(), has_more_ ? 0 : static_cast<int>(kPulseInterval.count()));
    look();
    clear_events();  // nodes that have gone again may come back
    if (Clock::now() < next_line) continue;
    next_line = Clock::now() + kLineInterval;
    std::vector<int> missing;
    for (int node = 1; node < num_needed; ++node) {
      if (is_missing(at(node))) missing.push_back(node);
    }
    line(fmt::format("waiting on {} for node{} {}", address().text(),
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  }
  min_ = own;
  for (const Node& each : nodes_) {
    for (size_t i = 0; i < min_.size() && i < each.numbers.size(); ++i) {
      min_[i] = std::min(min_[i], each.numbers[i]);
    }
  }
  for (size_t node = 1; node < nodes_.size(); ++node) {
    if (!is_missing(nodes_[node])) welcome(static_cast<int>(node));
  }
  return min_;
}

// ---- connections ----

void NodeServer::add_descriptors(std::vector<pollfd>* fds) const {
  arrivals_.add_descriptors(fds);
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

// Nodes before arrivals: one whose connection has ended makes room for its next one.
void NodeServer::look() {
  has_more_ = false;
  for (size_t node = 1; node < nodes_.size(); ++node) read(static_cast<int>(node));
  for (const NodeArrivals::Admitted& each : arrivals_.take()) take(each);
  pulse();
}

// A node that sends without pause must not hold the keeper.
void NodeServer::read(int node) {
  Node& from = at(node);
  if (from.state == State::kAbsent) return;
  from.stream.write();
  int left = kMaxMessagesAtOnce;
  for (; left > 0; --left) {
    auto message = from.stream.next();
    if (!message) break;
    take(node, std::move(*message));
    if (from.state == State::kAbsent) return;
  }
  if (left == 0 && from.stream.has_unread()) has_more_ = true;
  // Before it is up, it may be busy with its files; the connection ends if it ends.
  const bool is_silent =
      from.state == State::kUp && Clock::now() - from.stream.heard_at() > kNodePatience;
  if (left > 0 && from.stream.is_broken()) {
    drop(node, "its connection has ended");
  } else if (is_silent) {
    drop(node, fmt::format("it was silent for {} ms", kNodePatience.count()));
  }
}

void NodeServer::take(const NodeArrivals::Admitted& arrival) {
  const Greeting::Who& who = arrival.who;
  const bool is_known = who.node > 0 && static_cast<size_t>(who.node) < nodes_.size();
  if (who.kind == Greeting::Kind::kPipes) {
    if (!is_known) {
      ::close(arrival.socket);
      return;
    }
    ::fcntl(arrival.socket, F_SETFL, ::fcntl(arrival.socket, F_GETFL) & ~O_NONBLOCK);
    events_.push_back({.kind = Event::Kind::kPipes,
                       .node = who.node,
                       .socket = arrival.socket,
                       .message = {.rank = who.rank, .value = who.serial}});
    return;
  }
  NodeStream stream(arrival.socket);
  if (!is_known) {
    stream.send({.kind = NodeMessage::Kind::kRefused,
                 .text = fmt::format("--node-rank: expected 1 to {}, as the service has {} nodes, "
                                     "found {}",
                                     nodes_.size() - 1, nodes_.size(), who.node)});
    return;
  }
  Node& node = at(who.node);
  if (node.state != State::kAbsent) {
    stream.send(
        {.kind = NodeMessage::Kind::kBusy,
         .text = fmt::format("node {} is there already, from {}: two have this --node-rank, "
                             "or its end was not noticed yet",
                             who.node, remote_address(node.stream.socket()).text())});
    return;
  }
  node.stream = std::move(stream);
  node.state = State::kGreeted;
  node.stream.send({.kind = NodeMessage::Kind::kGreeted});
}

void NodeServer::take(int node, NodeMessage message) {
  Node& from = at(node);
  using Kind = NodeMessage::Kind;
  if (message.kind == Kind::kPulse) return;
  if (message.kind == Kind::kNumbers && from.state == State::kGreeted) {
    from.numbers = std::move(message.numbers);
    if (!min_.empty()) welcome(node);
  } else if (message.kind == Kind::kSettings && from.state == State::kWelcomed) {
    if (!settings_) return drop(node, "it came too early");
    const Settings theirs = settings_from(message.text);
    const Status same = check_settings_match(*settings_, theirs, node, "nodes");
    if (!same.ok()) {
      return refuse(
          node, same,
          fmt::format("nodes 0 and {} differ in {}", node, name_of_difference(*settings_, theirs)));
    }
    from.state = State::kAccepted;
  } else if (message.kind == Kind::kUp && from.state == State::kAccepted) {
    from.state = State::kUp;
    events_.push_back({.kind = Event::Kind::kUp, .node = node});
  } else if (from.state == State::kUp) {
    if (message.kind == Kind::kDied) message.text = base::printable(message.text, kMaxShown);
    events_.push_back({.kind = Event::Kind::kMessage, .node = node, .message = std::move(message)});
  }
}

// What a node can have depends on its free memory, of which it takes a part only (RunOptions::
// cache_share): one that comes later may have a little less than the others and still keep up.
void NodeServer::welcome(int node) {
  Node& to = at(node);
  for (size_t i = 0; i < min_.size() && i < to.numbers.size(); ++i) {
    if (to.numbers[i] >= min_[i] / 2 + min_[i] % 2) continue;
    return refuse(
        node,
        failed(fmt::format("node {} has memory for {} pages of the KV cache or states, and the "
                           "others have {}: free some, or set kv_cache_config.max_tokens",
                           node, to.numbers[i], min_[i])),
        fmt::format("node {} has too little memory", node));
  }
  std::vector<uint64_t> numbers = {service_};
  numbers.insert(numbers.end(), min_.begin(), min_.end());
  to.stream.send({.kind = NodeMessage::Kind::kWelcome, .numbers = std::move(numbers)});
  to.state = State::kWelcomed;
}

// hint: what a node is told where no key is used: anybody could ask again and again, until it knew
// all values.
void NodeServer::refuse(int node, const Status& why, const std::string& hint) {
  const std::string text = base::printable(why.message(), kMaxShown);
  Node& refused = at(node);
  const bool is_new = Clock::now() >= refused.warn_after || refused.warned_of != text;
  if (is_new) log::warn("node {}: {}", node, text);
  if (is_new) refused.warn_after = Clock::now() + kLineInterval;
  refused.warned_of = text;
  refused.stream.send({.kind = NodeMessage::Kind::kRefused,
                       .text = has_key_ ? text : hint + "; the log of node 0 says more",
                       .numbers = {}});
  drop(node, text);
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
  gone.stream = NodeStream();
  gone.state = State::kAbsent;
  gone.numbers.clear();
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
