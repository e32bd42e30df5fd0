// SPDX-License-Identifier: Apache-2.0
//
// Ranks that a launcher (mpirun, srun) has started as separate processes, on one node or several.
// Forked ranks inherit settings and shared memory from their parent. These ranks must compare their
// settings, share memory through NodeSockets, and send results to rank 0, which shows them.
//
//   start:  StartedRanks (created by mpi_ranks.h)
//           agree_on(this rank's status and settings)
//   run:    start_started_ranks: as start_rank_processes, but every process is a rank
//
//  - Any rank gets SIGINT or SIGTERM: all ranks stop after the same iteration. If a rank takes
//    longer than the grace period, the group fails.
//  - A rank dies or fails: ranks of its node see its socket close, ranks of other nodes get a
//    message. All waits return the error at once.
//  - A node no longer answers: ranks that wait for its ranks fail at their deadline, and send the
//    error to the others.
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
#include "group/messenger.h"
#include "group/node_sockets.h"
#include "group/running_ranks.h"
#include "group/settings.h"
#include "transport/endpoint.h"
#include "transport/link.h"
#include "transport/node_map.h"
#include "transport/rank_threads.h"

namespace wideep::transport {

class StartedRanks {
 public:
  // control: link for start and end; data: link for the run. Both connect the same ranks.
  StartedRanks(std::unique_ptr<Link> control, std::unique_ptr<Link> data, NodeMap nodes, int rank);

  int rank() const { return rank_; }
  int num_ranks() const { return nodes_.num_ranks(); }
  const NodeMap& nodes() const { return nodes_; }
  int node() const { return nodes_.node_of(rank_); }
  // Whether this is the node's first rank. It reports errors that rank 0 may be unable to report.
  bool is_first_of_node() const { return nodes_.index_on_node(rank_) == 0; }
  Link& data() { return *data_; }
  const NodeSockets& sockets() const { return sockets_; }

  // Collective. Ok if the status of every rank is ok and all settings are equal. Errors, the same
  // on all ranks: the error of the lowest rank that has one, or the first setting that differs
  // (invalid input). After deadline_exceeded the ranks are broken.
  Status agree_on(const Status& mine, const Settings& settings, std::chrono::milliseconds timeout);

  // Collective: the minimum of all ranks' values. Errors (deadline_exceeded): a rank sent none.
  Result<uint64_t> all_reduce_min(uint64_t mine, std::chrono::milliseconds timeout);

  // Allocates memory that the ranks of this node share. Collective on each node.
  base::MakeSharedBytes make_shared();

  // True after a failure: the links must not be used for collective calls any more.
  bool is_broken() const { return is_broken_; }
  void set_broken() { is_broken_ = true; }

 private:
  Result<Bytes> receive_from(int rank, std::chrono::milliseconds timeout, const char* what);
  Status collect_statuses(const Status& mine, const Settings& settings,
                          std::chrono::milliseconds timeout);
  Status join_node(std::chrono::milliseconds timeout);

  std::unique_ptr<Link> control_;
  std::unique_ptr<Link> data_;
  NodeMap nodes_;
  int rank_;
  std::vector<std::deque<Bytes>> early_;  // by rank: received before receive_from asked for them
  NodeSockets sockets_;
  bool has_joined_node_ = false;
  bool is_broken_ = false;
};

// Runs `body` on this rank, on a new thread. RunningRanks::next returns the messages of all ranks
// on rank 0, and stop signals on every rank. The result is the same on all ranks if the links still
// work. Errors, the same on all ranks: the kernel refuses memory on some rank; a rank is late.
Result<std::unique_ptr<RunningRanks>> start_started_ranks(
    StartedRanks& ranks, const GroupOptions& options,
    std::function<Status(Endpoint&, const Messenger&)> body);

// Starts this rank and waits for its end. On rank 0, passes the messages of all ranks to
// on_message(rank, message).
Status run_started_ranks(StartedRanks& ranks, const GroupOptions& options,
                         std::function<Status(Endpoint&, const Messenger&)> body,
                         const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
