// SPDX-License-Identifier: Apache-2.0
//
// Ranks that a launcher (mpirun, srun) has started as processes of their own, on one node or
// several. What fork gives to ranks of one parent they have to find: each other's settings, the
// memory of their node, and a rank that shows results (rank 0).
//
//   start:  StartedRanks (mpi_ranks.h makes it)
//           agree_on(what I have read and found, or why I cannot go on)
//   run:    start_started_ranks: as start_rank_processes, but everybody is a rank
//
//  - SIGINT or SIGTERM to any rank: all stop after the same iteration; a rank that takes longer
//    than the grace period fails, and with it all.
//  - A rank dies or fails: the ranks of its node see its sockets end, those of other nodes are
//    told; waits fail with its message at once.
//  - A node falls silent: whoever waits for its ranks fails at the deadline, and tells the others.
//
// Thread safety: one thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_bytes.h"
#include "transport/endpoint.h"
#include "transport/link.h"
#include "transport/messenger.h"
#include "transport/node_map.h"
#include "transport/node_sockets.h"
#include "transport/rank_threads.h"
#include "transport/running_ranks.h"

namespace wideep::transport {

// By name, in an order that is the same on all ranks.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Of rank 0 and of rank `rank`. Errors (invalid input): the first setting that differs, with both
// values.
Status check_settings_match(const Settings& first, const Settings& other, int rank);

class StartedRanks {
 public:
  // Two links between the same ranks: one for start and end, one for all between.
  StartedRanks(std::unique_ptr<Link> control, std::unique_ptr<Link> data, NodeMap nodes, int rank);

  int rank() const { return rank_; }
  int num_ranks() const { return nodes_.num_ranks(); }
  const NodeMap& nodes() const { return nodes_; }
  int node() const { return nodes_.node_of(rank_); }
  // The first of its node: shows what rank 0 may not be able to show any more.
  bool is_first_of_node() const { return nodes_.place_of(rank_) == 0; }
  Link& data() { return *data_; }
  const NodeSockets& sockets() const { return sockets_; }

  // Collective: ok where every rank is, and all have the same settings; else, on all ranks, what is
  // wrong on the first, or the first setting that differs (invalid input).
  Status agree_on(const Status& mine, const Settings& settings, std::chrono::milliseconds timeout);

  // Collective: the least of what the ranks give. Errors: a rank does not in time.
  Result<uint64_t> least(uint64_t mine, std::chrono::milliseconds timeout);

  // Memory that the ranks of this node share. Collective on each node.
  base::MakeSharedBytes make_shared();

  // Whether the ranks may still be spoken to: not after a failure.
  bool is_broken() const { return is_broken_; }
  void set_broken() { is_broken_ = true; }

 private:
  Result<Bytes> receive_from(int rank, std::chrono::milliseconds timeout, const char* what);
  Status decide(const Status& mine, const Settings& settings, std::chrono::milliseconds timeout);
  Status join_node(std::chrono::milliseconds timeout);

  std::unique_ptr<Link> control_;
  std::unique_ptr<Link> data_;
  NodeMap nodes_;
  int rank_;
  std::vector<std::deque<Bytes>> early_;  // by rank: came before it was asked for
  NodeSockets sockets_;
  bool has_joined_node_ = false;
  bool is_broken_ = false;
};

// Begins to run body on this rank, on a thread of its own. Rank 0 hears from all
// (RunningRanks::next); the others hear stop signals only. The result is the same on all ranks
// where they can still speak. Errors: no memory; a rank does not begin.
Result<std::unique_ptr<RunningRanks>> start_started_ranks(
    StartedRanks& ranks, const GroupOptions& options,
    std::function<Status(Endpoint&, const Messenger&)> body);

// The same, and hears what the ranks say (on_message(rank, message)) until they have ended.
Status run_started_ranks(StartedRanks& ranks, const GroupOptions& options,
                         std::function<Status(Endpoint&, const Messenger&)> body,
                         const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
