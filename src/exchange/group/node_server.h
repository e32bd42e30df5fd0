// SPDX-License-Identifier: Apache-2.0
//
// The other nodes of a service, for its keeper on node 0: takes their connections, checks that they
// have the same settings, and passes on what they say.
//
//   node: handshake ──▶  ◀── kGreeted  ──▶ kNumbers  ◀── kWelcome  ──▶ kSettings
//         ... loads ...  ──▶ kUp
//
// A node that has been silent for kNodePatience is gone, as one whose connection has ended: it may
// come back with a new connection. A node that is cut off notices that by the same rule, and ends
// its ranks (group/node_client.h). While a node is there, nobody takes its place.
//
// Handshake: group/node_handshake.h. Who has not proved the cluster's key is told nothing.
//
// Thread safety: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/node_handshake.h"
#include "group/node_stream.h"
#include "group/settings.h"

namespace wideep::transport {

class NodeServer {
 public:
  using Clock = std::chrono::steady_clock;
  // Errors (failed): the address cannot be used.
  static Result<std::unique_ptr<NodeServer>> listen(const PeerAddress& address, int num_nodes,
                                                    const ClusterKey& key);
  ~NodeServer();
  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;

  uint64_t service() const { return service_; }
  PeerAddress address() const { return arrivals_.address(); }

  // Waits for the first num_needed nodes. They, and others that have come by then, tell what they
  // can have of each thing; returns the least, and tells them. line: called now and then with what
  // it waits for.
  Result<std::vector<uint64_t>> agree_on(int num_needed, const std::vector<uint64_t>& own,
                                         const std::function<void(const std::string&)>& line);
  // Those that all nodes must have.
  void set_settings(Settings settings) { settings_ = std::move(settings); }

  // ---- while the keeper runs ----

  struct Event {
    enum class Kind { kUp, kDown, kPipes, kMessage } kind = Kind::kUp;
    int node = 0;
    std::string why = {};      // kDown
    int socket = -1;           // kPipes: of commands and messages, owned by the receiver; blocking
    NodeMessage message = {};  // kMessage: of a node that is up; kPipes: rank and value
  };
  void add_descriptors(std::vector<pollfd>* fds) const;
  Clock::time_point next_deadline() const {
    return has_more_ || !events_.empty() ? Clock::now() : next_pulse_;
  }
  std::optional<Event> next_event();
  bool is_up(int node) const { return at(node).state == State::kUp; }
  // Says to all that this one is there, if it is time: often enough while the keeper does what
  // takes long, such as to fork many ranks.
  void pulse();
  void send(int node, const NodeMessage& message);
  void send_all(const NodeMessage& message);
  // The service has ended: told to those that are not up yet, too, which would wait for it.
  void finish();
  // Ends the connection. Its Event follows.
  void drop(int node, const std::string& why);
  // In a process that was just forked.
  void forget();

 private:
  enum class State { kAbsent, kGreeted, kWelcomed, kAccepted, kUp };
  struct Node {
    NodeStream stream;
    State state = State::kAbsent;
    std::vector<uint64_t> numbers;  // empty: not told yet
    std::string warned_of;          // the last refusal, which is said again after a while only
    Clock::time_point warn_after;
  };
  NodeServer(int listener, int num_nodes, const ClusterKey& key);
  Node& at(int node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int node) const { return nodes_[static_cast<size_t>(node)]; }
  void look();
  void read(int node);
  void take(const NodeArrivals::Admitted& arrival);
  void take(int node, NodeMessage message);
  void welcome(int node);
  void refuse(int node, const Status& why, const std::string& hint);
  void clear_events();

  uint64_t service_;
  bool has_key_;
  NodeArrivals arrivals_;
  std::vector<Node> nodes_;    // [num_nodes], that of node 0 unused
  std::vector<uint64_t> min_;  // empty: not agreed yet
  std::optional<Settings> settings_;
  std::deque<Event> events_;
  bool has_more_ = false;  // messages that have come and were not taken yet
  Clock::time_point next_pulse_;
};

}  // namespace wideep::transport
