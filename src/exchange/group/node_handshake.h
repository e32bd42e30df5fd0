// SPDX-License-Identifier: Apache-2.0
//
// How connections to the port of a service begin (group/node_server.h): who connects says what
// it is, and proves that it has the cluster's key (cluster_key.h). Before that nothing is compared
// and nothing is told.
//
//   a node's connection    Greeting ──▶   ◀── Challenge   ──▶ Digest   ◀── Digest, then messages
//   the pipes of a rank    Greeting with its proof ──▶
//
// Thread safety: plain values; functions without state; NodeArrivals: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/cluster_key.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::transport {

struct Greeting {
  static constexpr uint64_t kMagic = 0x65646f6e70656477;  // "wdepnode"
  enum class Kind : uint32_t { kNode, kPipes };
  struct Who {
    uint64_t magic = kMagic;
    uint64_t service = 0;  // kPipes: as NodeMessage::kWelcome says
    Kind kind = Kind::kNode;
    int32_t node = 0;
    int32_t rank = 0;     // kPipes: whose commands and messages follow
    uint32_t serial = 0;  // kPipes: as in kStart or kPipes; each is used once
  };
  Who who;
  Digest digest = {};  // kNode: a fresh nonce; kPipes: the proof
};

struct Challenge {
  static constexpr uint64_t kMagic = 0x6c61686370656477;  // "wdepchal"
  uint64_t magic = kMagic;
  Digest nonce = {};
};

Digest proof_of_node(const ClusterKey& key, const Greeting& greeting, const Challenge& challenge);
Digest proof_of_service(const ClusterKey& key, const Greeting& greeting,
                        const Challenge& challenge);
Digest proof_of_pipes(const ClusterKey& key, const Greeting::Who& who);

// ---- who connects ----

// Connects as this node, and waits until the service has proved itself, for as long as the
// connection stays: node 0 may be loading. is_late: called now and then meanwhile. Errors (failed):
// nobody listens there; one of the two does not have the other's key.
Result<int> connect_as_node(const PeerAddress& service, const ClusterKey& key, int node,
                            const std::function<void()>& is_late);
// Connects for the pipes of a rank. who.kind: kPipes.
Result<int> connect_for_pipes(const PeerAddress& service, const ClusterKey& key,
                              const Greeting::Who& who);

// ---- the service ----

// Accepts connections, and has those that have proved the key. The others cost a socket each, for
// kGreetingPatience at most, and of more than kMax the oldest of the busiest machine makes room.
class NodeArrivals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kGreetingPatience{2'000};
  static constexpr size_t kMax = 16;  // beside two for each node

  // Owns the listener.
  NodeArrivals(int listener, ClusterKey key, uint64_t service, size_t num_nodes)
      : listener_(listener), key_(std::move(key)), service_(service), max_(kMax + 2 * num_nodes) {}
  ~NodeArrivals() { forget(); }
  NodeArrivals(const NodeArrivals&) = delete;
  NodeArrivals& operator=(const NodeArrivals&) = delete;

  PeerAddress address() const { return local_address(listener_); }
  void add_descriptors(std::vector<pollfd>* fds) const;
  struct Admitted {
    int socket = -1;  // owned by the receiver; never blocks
    Greeting::Who who;
  };
  // Those that have just proved the key.
  std::vector<Admitted> take();
  size_t num_waiting() const { return waiting_.size(); }
  // In a process that was just forked.
  void forget();

 private:
  struct Arrival {
    int socket = -1;
    std::array<uint8_t, 16> host = {};
    Clock::time_point since;
    size_t received = 0;  // of the greeting, then of the proof
    bool is_challenged = false;
    Greeting greeting;
    Challenge challenge;
    Digest proof = {};
  };
  enum class Outcome { kWaits, kGone, kAdmitted };
  void accept_some();
  void make_room();
  Outcome advance(Arrival& arrival);
  Outcome take_greeting(Arrival& arrival);
  Outcome take_proof(const Arrival& arrival);
  void warn_of(const Arrival& arrival);

  int listener_;
  ClusterKey key_;
  uint64_t service_;
  size_t max_;
  std::vector<Arrival> waiting_;
  Clock::time_point accept_after_;  // no descriptor was free
  std::optional<Clock::time_point> warned_at_;
  int num_unproved_ = 0;  // since then
};

}  // namespace wideep::transport
