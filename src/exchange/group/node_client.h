// SPDX-License-Identifier: Apache-2.0
//
// A node other than 0 of a service: connects to the keeper on node 0, starts and ends the ranks of
// this node as it says, and passes on what they say (group/node_server.h has the other side).
//
// A node that hears nothing for kNodePatience, or whose connection ends, is cut off: it kills its
// ranks at once and connects again. So ranks of a lost node never compute beside those that have
// replaced them.
//
// Thread safety: one thread, the only one of the process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "group/node_stream.h"
#include "group/rank_host.h"
#include "group/settings.h"
#include "transport/cluster_key.h"

namespace wideep::transport {

class NodeClient {
 public:
  // Connects, as often as it takes. where: the address of the service, asked for before each
  // attempt; an error of it is waited for, too. line: called now and then with what it waits for.
  // Errors (invalid input): the service knows no such node.
  static Result<NodeClient> connect(const std::function<Result<PeerAddress>()>& where,
                                    const ClusterKey& key, int node,
                                    const std::function<void(const std::string&)>& line);

  // Tells what this node can have of each thing, and returns what all have. Errors: the service
  // refuses this node (invalid input); (deadline_exceeded) it is gone.
  Result<std::vector<uint64_t>> agree_on(const std::vector<uint64_t>& own);
  void present(const Settings& settings);
  // alive: called again and again, as long as this node waits or runs ranks.
  void on_alive(std::function<void()> alive) { alive_ = std::move(alive); }
  // stops: called with the first signal that ends this node. If the service ends, too, the node
  // stays until it has ended.
  void on_stop(std::function<void(int signal)> stops) { stops_ = std::move(stops); }

  uint64_t service() const { return service_; }
  PeerAddress here() const;  // this node as the service sees it, port 0

  enum class Ended { kFinished, kStopped, kCutOff };
  struct Options {
    GroupOptions group;
    NodePlace place;
    std::function<Status()> can_go_on;  // as KeeperOptions; ends this node alone
    std::function<void()> before_epoch;
    std::function<void(int rank)> after_death;
  };
  // Until the service has ended, this process has got a stop signal, or it is cut off; no rank is
  // left. Errors: the service refuses this node, with its words (invalid input); can_go_on.
  Result<Ended> run(const Options& options, const std::function<Status(Seat&)>& rank,
                    const std::shared_ptr<SharedMemory>& memory);

 private:
  NodeClient(PeerAddress service, ClusterKey key, int node, NodeStream stream)
      : service_address_(service), key_(std::move(key)), node_(node), stream_(std::move(stream)) {}
  class Run;

  PeerAddress service_address_;
  ClusterKey key_;
  int node_;
  uint64_t service_ = 0;
  std::function<void()> alive_ = [] {};
  std::function<void(int)> stops_ = [](int) {};
  NodeStream stream_;
};

}  // namespace wideep::transport
