// SPDX-License-Identifier: Apache-2.0
//
// Sends a rank's tokens in a call: finds the ranks of their slots, delivers the rows
// (row_delivery.h), and records where the results will be. Raises no flags.
//
// A destination writes its results in the order of the messages from this rank, and of the slots in
// each message. The sender has determined that order, so it knows each result's address without any
// exchange.
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
  // crossing: null if no rows cross between nodes. Both outlive the sender.
  DispatchSender(const GroupBuffers& buffers, NodeCrossing* crossing);

  // Sends the batch, and sets the members of `call` that belong to start_dispatch.
  // Errors (invalid input): more tokens than announced in begin; spans of a wrong size; slots that
  // do not exist or are repeated. Some rows may have been sent already, so the caller fails the
  // group.
  Status send(const DispatchBatch& batch, DispatchCall& call);

  // In the last call: the number of messages that `peer` will read; and [ep_size] the number of
  // (token, expert) pairs for each rank.
  int num_messages_for(int peer) const { return delivery_->num_messages_for(peer); }
  std::span<const int32_t> sent_entries() const { return sent_entries_; }

 private:
  int top_k() const { return buffers_.layout.shape().top_k; }
  Status check(const DispatchBatch& batch, const DispatchCall& call) const;
  Status invalid_slot_error(const DispatchBatch& batch, int token) const;
  void start(const DispatchBatch& batch, DispatchCall& call);
  bool send_token(const DispatchBatch& batch, int token, DispatchCall& call);
  void record_results(int token, DispatchCall& call) const;
  void record_reduced_results(int token, DispatchCall& call);
  bool is_first_of_node(int node);
  void advance();

  const GroupBuffers& buffers_;
  NodeCrossing* crossing_;
  std::unique_ptr<RowDelivery> delivery_;
  TokenDestinations destinations_;       // of the current token
  std::vector<std::byte*> next_result_;  // [ep_size] current token's first result on each rank
  std::vector<int32_t> sent_entries_;    // [ep_size]
  std::vector<int> node_of_;             // [ep_size]; empty unless nodes send sums
  std::vector<int> recorded_nodes_;      // nodes whose sum is recorded for the current token
};

}  // namespace wideep::ep
