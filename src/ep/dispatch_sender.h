// SPDX-License-Identifier: Apache-2.0
//
// What a source does with the tokens of a call: it finds the ranks of their slots, delivers their
// rows there (row_delivery.h), and notes where their results will lie. It raises no flags.
//
// Results lie where their rank writes them, in the order of the messages that it gets from this
// rank and of their slots: the source knows that order, for it has made it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ep/dispatch_call.h"
#include "ep/node_crossing.h"
#include "ep/row_delivery.h"
#include "ep/token_destinations.h"
#include "wideep/status.h"

namespace wideep::ep {

class DispatchSender {
 public:
  // buffers, and crossing, which is null where nothing crosses, outlive the sender.
  DispatchSender(const GroupBuffers& buffers, NodeCrossing* crossing);

  // Sends the batch, and fills in what the call has of it.
  // Errors (invalid input): more tokens than the call has announced; spans of another size; slots
  // that no token can have. Rows may have been sent by then: the group cannot go on.
  Status send(const DispatchBatch& batch, DispatchCall& call);

  // Of the call that was sent last: messages that a peer will find; and (token, expert) pairs for
  // each rank, [ep_size].
  int num_messages_for(int peer) const { return delivery_->num_messages_for(peer); }
  std::span<const int32_t> sent_entries() const { return sent_entries_; }

 private:
  int top_k() const { return buffers_.layout.shape().top_k; }
  Status check(const DispatchBatch& batch, const DispatchCall& call) const;
  Status explain_slots(const DispatchBatch& batch, int token) const;
  void start(const DispatchBatch& batch, DispatchCall& call);
  bool send_token(const DispatchBatch& batch, int token, DispatchCall& call);
  void note_results(int token, DispatchCall& call) const;
  void note_reduced_results(int token, DispatchCall& call);
  bool is_first_of_node(int node);
  void advance();

  const GroupBuffers& buffers_;
  NodeCrossing* crossing_;
  std::unique_ptr<RowDelivery> delivery_;
  TokenDestinations destinations_;       // of the current token
  std::vector<std::byte*> next_result_;  // [ep_size] the current token's first result of each rank
  std::vector<int32_t> sent_entries_;    // [ep_size]
  std::vector<int> node_of_;             // [ep_size]; only where a node sends one sum
  std::vector<int> noted_nodes_;         // of the current token: nodes whose sum has been noted
};

}  // namespace wideep::ep
