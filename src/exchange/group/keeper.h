// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that may die while the others go on (docs/faults.md).
//
//   keeper ── RankHost ──forks──▶ ranks of this node; each joins the others over its Seat
//     │    ── NodeServer ──TCP──▶ NodeClient on each other node, with a RankHost for its ranks
//     │    ──forks──▶ front       serves: sends commands to ranks, reads their messages
//     (KeptRanks) └── notes (group/notes.h) to and from the front
//
// The keeper does no work of its own. It has one thread, so it may fork at any time, and it has
// everything that a rank needs: a rank that has died is started again from it.
//
//  - A rank dies: all waits of the other members fail at once, and they leave. When all have left,
//    the keeper clears the shared memory and forms the next epoch of them (Membership).
//  - A rank hangs: a member that waits for it fails at its deadline and leaves; then all have
//    leave_timeout to leave. Who does not answer is killed. A rank that is stopped (SIGSTOP) is
//    killed after a moment.
//  - A rank fails of itself (out of memory, for example): it says why, dies, and is started again,
//    each time later if it fails again.
//  - Two nodes cannot reach each other, though both reach this one: one of them is left out, its
//    ranks end, until it reaches the other again (group/node_cuts.h).
//  - A node is lost: all its ranks have died. Its own keeper kills them if it still runs, and
//    connects again (group/node_client.h).
//  - A rank dies before the first epoch: an error, as without a keeper.
//  - The front dies: another one is forked. It gets the connections of clients, which the keeper
//    has accepted and holds, and all ranks, which have left their epoch and begin anew with its
//    requests.
//  - The front gets SIGINT and SIGTERM as events, and so does one that goes on where it has died.
//    It says how long running requests may take, and when none is left. Until then ranks and fronts
//    that die are replaced, and epochs begin, as at any other time. If a second signal comes,
//    everything ends at once.
//  - SIGHUP, and a front that is asked for it, drain: requests are refused, and also by fronts that
//    follow, until one of them is asked to take them again.
//  - The keeper dies: the kernel kills the ranks and the front, and other nodes kill theirs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/service_notifier.h"
#include "group/kept_ranks.h"
#include "group/kept_seat.h"
#include "group/node_server.h"
#include "group/seat.h"
#include "transport/rank_threads.h"

namespace wideep::transport {

struct KeeperOptions {
  GroupOptions group;  // num_ranks: the most that there can be
  int wanted = 1;      // ranks at the start
  int min = 1;         // fewer members form no epoch: the others wait until a rank has returned
  std::chrono::milliseconds leave_timeout{2'000};
  // The front has the group's timeout to answer, but at least this.
  std::chrono::milliseconds front_patience{10'000};
  // A socket that listens, whose clients are accepted here and outlive a front; −1: there is none.
  int listener = -1;
  size_t max_clients = 4096;
  // Makes the descriptor that stays with a connection (HeldConnections).
  std::function<Result<int>(int socket)> companion;
  // Called before a rank is started again and before an epoch begins. An error ends everything:
  // what a rank would read is not what the others have read.
  std::function<Status()> can_go_on;
  // As RankHost::Options.
  std::function<void()> before_epoch;
  std::function<void(int rank)> after_death;
  // Told how the service does: signs of life while the front gives them. Null: there is none.
  const base::ServiceNotifier* manager = nullptr;
  // Of several nodes, of which this one is the first; null: there is one.
  NodeServer* nodes = nullptr;
  const NodePlace* place = nullptr;
};

// Forks the ranks and the front, and returns when all have ended: what front returned, or the error
// that prevented the first epoch. REQUIRES: this process has only one thread.
using FrontBody = std::function<Status(std::unique_ptr<KeptRanks>)>;
Status keep_ranks(const KeeperOptions& options, const std::function<Status(Seat&)>& rank,
                  const FrontBody& front);

}  // namespace wideep::transport
