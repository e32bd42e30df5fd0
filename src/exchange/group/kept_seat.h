// SPDX-License-Identifier: Apache-2.0
//
// The Seat of a rank that a RankHost has forked: notes to and from it say who the members are, and
// where ranks are on several nodes, each epoch has its own link and bridge.
//
// Thread safety: as Seat.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "group/message_pipe.h"
#include "group/notes.h"
#include "group/seat.h"
#include "transport/bridge.h"
#include "transport/node_map.h"
#include "transport/rank_threads.h"
#include "transport/tcp_link.h"

namespace wideep::transport {

// Which ranks are on which node, and which node this is.
struct NodePlace {
  NodeMap nodes;
  int node = 0;
  PeerAddress here = {};  // of this node, port 0
  uint64_t service = 0;   // TcpLink::Place
  ClusterKey links = {};  // the same: ClusterKey::for_links
};

// Sends to the front that there is now, and changes to another one between epochs.
class FrontMessenger : public Messenger {
 public:
  explicit FrontMessenger(int fd) { change(fd); }
  ~FrontMessenger() override { close(); }
  void change(int fd);
  Status send(std::string_view message) const override;
  Status send_with_next(std::string_view message) const override;

 private:
  void close();
  mutable std::mutex mutex_;  // threads of the rank may send while the front changes
  std::unique_ptr<MessagePipe> pipe_;
  int fd_ = -1;
};

class KeptSeat : public Seat {
 public:
  // place: null if there is one node. References outlive this. Owns commands and messages.
  KeptSeat(std::shared_ptr<SharedMemory> memory, int rank, const GroupOptions& options,
           const NodePlace* place, const NoteSocket& host, int commands, int messages);
  ~KeptSeat() override;

  // Begins to listen for ranks of other nodes. Errors (failed): the network refuses.
  Status listen();

  int rank() const override { return rank_; }
  Bridge* bridge() const override { return bridge_.get(); }
  bool is_on_this_node(int rank) const override {
    return place_ == nullptr || place_->nodes.node_of(rank) == place_->node;
  }
  const Messenger& messenger() const override { return messenger_; }
  int commands() const override { return commands_; }
  bool may_change() const override { return true; }
  Endpoint& world() override { return *world_; }
  Result<std::optional<Members>> join() override;
  bool has_lost(const Status& ended) const override;

 private:
  void leave();
  void enter(const Members& members);

  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  const GroupOptions& options_;
  const NodePlace* place_;
  const NoteSocket& host_;
  int commands_;
  FrontMessenger messenger_;
  int listener_ = -1;
  uint32_t epoch_ = 0;  // 0: has not joined yet
  // Of the epoch; bridge and link only if it has members on several nodes.
  std::unique_ptr<TcpLink> link_;
  std::unique_ptr<Bridge> bridge_;
  std::unique_ptr<Endpoint> world_;
};

}  // namespace wideep::transport
