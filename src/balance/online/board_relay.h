// SPDX-License-Identifier: Apache-2.0
//
// The boards of one group on several nodes. Each node has its own board in its memory
// (update_board.h). A plan posted on the board of the balancer's node is sent to a proxy on each
// other node, which posts it there; counters are sent to the node of the first rank, which reports
// them.
//
// A plan may reach a node late: its ranks finish their copies later, and the layer is decided when
// all ranks are done (update_state.h). No rank's iteration waits for it. The next plan of a layer
// may overwrite the board without a further message: it is posted only after all ranks have
// published that they are done with the one before.
//
// Thread safety: the relay is for the rank's background threads; apply_notice for the thread of its
// endpoints.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "online/update_board.h"
#include "transport/bridge.h"

namespace wideep::online {

class BoardRelay {
 public:
  // group: the index of the group's board, as for apply_notice. ranks: the group's ranks, numbered
  // in the world, all of them there; rank: the calling one of them. board and bridge must outlive
  // this.
  BoardRelay(transport::Bridge& bridge, const UpdateBoard& board, int group,
             std::span<const int> ranks, int rank);

  // Sends the layer's last posted plan to the other nodes of the group.
  void send_plan(int layer) const;
  // Send the counters of this rank's updater, or of the balancer, to the node of the first rank.
  void send_updater_counters() const;
  void send_balancer_counters() const;

 private:
  bool is_home() const { return bridge_.node() == home_; }

  transport::Bridge& bridge_;
  const UpdateBoard& board_;
  int group_;
  int rank_;
  int home_;                 // node of the world's first rank
  std::vector<int> others_;  // nodes of the group's other ranks
};

// For a proxy: posts or stores on this node's board what a relay on another node has sent. boards:
// of this node, one for each group, null if the node has none of the group's ranks. False, and
// without effect: the notice names a group, layer or rank that is not there, or has another length.
bool apply_notice(std::span<const std::byte> notice, std::span<UpdateBoard* const> boards);

}  // namespace wideep::online
