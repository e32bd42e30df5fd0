// SPDX-License-Identifier: Apache-2.0
//
// Delivers the rows of a call's tokens to the ranks of their slots. One implementation per
// Strategy:
//
//   kDispatch   pushes a row into the segment of every rank that has a slot of the token; ranks on
//               other nodes get it through NodeCrossing
//   kAllGather  publishes a row once, in this rank's own segment
//
// Neither copies a row for this rank's own slots: its experts read the caller's row
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
    const float* weights;  // [top_k]; Combine::kReduced only, else null
  };

  // crossing: null if no rows cross between nodes. Both outlive the delivery.
  static std::unique_ptr<RowDelivery> create(const GroupBuffers& buffers, NodeCrossing* crossing);
  virtual ~RowDelivery() = default;

  // Order: start, deliver for each token, finish. `call` outlives finish.
  virtual void start(DispatchCall& call) = 0;
  // REQUIRES: to.find has succeeded for the token.
  virtual void deliver(const Token& token, const TokenDestinations& to) = 0;
  virtual void finish() = 0;

  // The number of messages that `peer` will read, for the word beside the dispatch flag.
  virtual int num_messages_for(int peer) const = 0;
};

}  // namespace wideep::ep
