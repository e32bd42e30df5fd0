// SPDX-License-Identifier: Apache-2.0
//
// Sockets between the first rank of a node and its others, for what processes can share only if
// they hold a descriptor of it: memory. They also show who has died.
//
// Their name lies in the abstract space: no file is left behind, however ranks end.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "transport/node_map.h"

namespace wideep::transport {

class NodeSockets {
 public:
  struct Peer {
    int rank = -1;
    pid_t pid = -1;
    int socket = -1;
  };

  NodeSockets() = default;
  ~NodeSockets();
  NodeSockets(const NodeSockets&) = delete;
  NodeSockets& operator=(const NodeSockets&) = delete;

  // The first rank of a node: listens. Returns the name for the others to connect to.
  Result<std::string> listen();
  // Takes in the others, each of which says which rank it is. Errors: not all came in time.
  Status accept(std::span<const int> ranks, std::chrono::milliseconds timeout);
  // One of the others.
  Status connect(const std::string& name, int first_rank, int my_rank);

  // Memory that all ranks of the node see. Collective: all ask for the same, in the same order.
  // Errors (failed): the kernel refuses the memory, on all ranks; the first rank has died.
  Result<base::SharedBytes> share(const char* purpose, size_t num_bytes, base::SharedPages pages);

  // With whom this rank is connected: the first rank with all others, these with the first.
  const std::vector<Peer>& peers() const { return peers_; }
  // This rank's end will be no surprise to its peers; and whether that of a peer is none.
  void say_goodbye() const;
  static bool has_said_goodbye(const Peer& peer);

 private:
  Result<base::SharedBytes> give(const char* purpose, size_t num_bytes, base::SharedPages pages);
  Result<base::SharedBytes> take(const char* purpose, size_t num_bytes);

  int listener_ = -1;
  bool is_first_ = true;
  std::vector<Peer> peers_;
};

}  // namespace wideep::transport
