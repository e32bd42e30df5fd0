// SPDX-License-Identifier: Apache-2.0
//
// A rank's place in a group, which may get other members while it runs (group/members.h).
//
//   ... load ...
//   for (;;) {
//     WIDEEP_TRY_ASSIGN(const auto members, seat.join());
//     if (!members) return {};  // not needed any more
//     const Status ended = compute_with(*members, seat.world());
//     if (!seat.has_lost(ended)) return ended;
//   }
//
// Thread safety: one thread, that of the rank's endpoints.
#pragma once

#include <memory>
#include <optional>

#include "group/members.h"
#include "group/messenger.h"
#include "transport/endpoint.h"

namespace wideep::transport {

class Seat {
 public:
  virtual ~Seat() = default;

  virtual int rank() const = 0;  // of the world
  // Null if all ranks are on this node. Where members may change: of the present ones.
  virtual Bridge* bridge() const { return nullptr; }
  // Whether the rank has its place on this node, if it is there.
  virtual bool is_on_this_node(int rank) const = 0;
  // Whether there may be other members one day.
  virtual bool may_change() const { return false; }
  virtual const Messenger& messenger() const = 0;
  // The pipe with this rank's commands; −1: they come over the bridge.
  virtual int commands() const = 0;

  // Leaves the members of the last call, and waits until the rank is one of new ones. The first
  // call says that it has loaded its weights. nullopt: the rank is to end. Errors: another rank has
  // failed; the keeper has ended.
  virtual Result<std::optional<Members>> join() = 0;
  // A new endpoint after each join(), which ends the one before: all flags are zero then.
  virtual Endpoint& world() = 0;
  // Whether a computation that ended so has lost a member and can go on with others.
  virtual bool has_lost(const Status& ended) const = 0;
};

// A place in a group whose members never change.
class FixedSeat : public Seat {
 public:
  // References outlive this.
  FixedSeat(Endpoint& world, const Messenger& messenger, int commands)
      : world_(world), messenger_(messenger), commands_(commands) {}

  int rank() const override { return world_.rank(); }
  Bridge* bridge() const override { return world_.bridge(); }
  bool is_on_this_node(int rank) const override { return world_.is_on_this_node(rank); }
  const Messenger& messenger() const override { return messenger_; }
  int commands() const override { return commands_; }
  // Collective the first time.
  Result<std::optional<Members>> join() override;
  Endpoint& world() override { return world_; }
  bool has_lost(const Status&) const override { return false; }

 private:
  Endpoint& world_;
  const Messenger& messenger_;
  int commands_;
  bool has_joined_ = false;
};

// A barrier with a longer timeout: how long weights take depends on the disk and differs between
// ranks by more than the timeout of an iteration. If a rank fails or dies, the wait still ends at
// once.
Status wait_for_weights(Endpoint& endpoint);

}  // namespace wideep::transport
