// SPDX-License-Identifier: Apache-2.0
//
// Boards of one group on several nodes. Each node has its own (update_board.h) in its memory. What
// is posted on the board of the balancer's node is sent to the proxies on the others, which post it
// there, and counters are sent to the node of rank 0, which reports them.
//
// A plan may come to a node late: its ranks' copies are done later then, and the layer is decided
// when all are (update_state.h). No rank's iteration waits for it. That a node's ranks do not read
// a layer's plan any more when the next one comes needs no word of theirs: it is posted after all
// ranks have told that they are done.
//
// Thread safety: of the rank's background threads; take_in on the thread of its endpoints.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "online/update_board.h"
#include "transport/bridge.h"

namespace wideep::online {

class BoardRelay {
 public:
  // group: numbers the boards, as take_in does. ranks: of the group, in the world. rank: the
  // caller, among them. board and bridge outlive this.
  BoardRelay(transport::Bridge& bridge, const UpdateBoard& board, int group,
             std::span<const int> ranks, int rank);

  // The plan posted last for the layer, to the other nodes of the group.
  void tell_plan(int layer) const;
  // This rank's counters; those of the balancer.
  void tell_updater() const;
  void tell_balancer() const;

 private:
  bool is_home() const { return bridge_.node() == home_; }

  transport::Bridge& bridge_;
  const UpdateBoard& board_;
  int group_;
  int rank_;
  int home_;                 // node of rank 0 of the world
  std::vector<int> others_;  // nodes of the group's other ranks
};

// As a proxy: posts what a relay on another node has sent. boards: of this node, one for each
// group, null where there is none.
void take_in(std::span<const std::byte> notice, std::span<UpdateBoard* const> boards);

}  // namespace wideep::online
