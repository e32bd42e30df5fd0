// SPDX-License-Identifier: Apache-2.0
//
// Unix sockets between the first rank of a node and the node's other ranks. They pass file
// descriptors of shared memory between processes, and show when a rank has died.
//
// The socket's name is in the abstract namespace: no file is left behind, however ranks end.
//
// Thread safety: one thread; peers() and has_announced_end: any, once connected.
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

  // On the first rank of a node: listens. Returns the name that the other ranks connect to.
  Result<std::string> listen();
  // On the first rank: accepts the connections of `ranks`. Errors (deadline_exceeded): not all have
  // connected in time.
  Status accept(std::span<const int> ranks, std::chrono::milliseconds timeout);
  // On the other ranks: connects to the first.
  Status connect(const std::string& name, int first_rank, int my_rank);

  // Allocates memory that all ranks of the node share. Collective: all ranks make the same calls in
  // the same order. purpose: for error messages.
  // Errors: the kernel refuses the memory (failed, on all ranks); the first rank has died (failed);
  // sizes differ (invalid_input).
  Result<base::SharedBytes> share(const char* purpose, size_t num_bytes, base::SharedPages pages);

  // The connected ranks: on the first rank all others, on these the first.
  const std::vector<Peer>& peers() const { return peers_; }
  // Tells the peers that this rank ends as planned, so that they do not report it as died.
  void announce_end() const;
  // Whether the peer has announced its end. Does not block.
  static bool has_announced_end(const Peer& peer);

 private:
  Result<base::SharedBytes> create_and_send(const char* purpose, size_t num_bytes,
                                            base::SharedPages pages);
  Result<base::SharedBytes> receive(const char* purpose, size_t num_bytes);

  int listener_ = -1;
  bool is_first_ = true;
  std::vector<Peer> peers_;
};

}  // namespace wideep::transport
