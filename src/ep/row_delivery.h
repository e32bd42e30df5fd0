// SPDX-License-Identifier: Apache-2.0
//
// How the rows of a call's tokens get to the ranks of their slots. There are two ways, one for each
// Strategy, chosen when a DispatchCombine is made:
//
//   kDispatch   a row is pushed into the segment of every rank that has a slot of the token; to
//   ranks
//               on other nodes it goes by way of the NodeCrossing
//   kAllGather  a row is published once, in this rank's own segment, where the others read it
//
// Neither copies a row for this rank's own slots: its experts read it where the caller has it
// (DispatchCall::own_rows).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "ep/dispatch_call.h"
#include "ep/node_crossing.h"
#include "ep/token_destinations.h"

namespace wideep::ep {

class RowDelivery {
 public:
  struct Token {
    const std::byte* row;
    const int32_t* slots;  // [top_k]
    const float* weights;  // [top_k]; null but for Combine::kReduced
  };

  // buffers, and crossing, which is null where nothing crosses, outlive the delivery.
  static std::unique_ptr<RowDelivery> create(const GroupBuffers& buffers, NodeCrossing* crossing);
  virtual ~RowDelivery() = default;

  // A call begins; then come its tokens in their order; then finish. call outlives all of them.
  virtual void start(DispatchCall& call) = 0;
  // REQUIRES: `to` has found the token's slots.
  virtual void deliver(const Token& token, const TokenDestinations& to) = 0;
  virtual void finish() = 0;

  // How many messages of the call a peer will find: to be sent with the flag of dispatch.
  virtual int num_messages_for(int peer) const = 0;
};

}  // namespace wideep::ep
