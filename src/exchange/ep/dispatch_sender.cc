// SPDX-License-Identifier: Apache-2.0
//
// One pass over the tokens: the ranks of a token's slots are found, its row is delivered, and the
// addresses of its results are noted, while all of it is in the caches. Slots are checked on the
// way, and an error is worked out again only when there is one. next_result_ holds the place of
// the current token's first result on every rank, and advance() moves it past the token's results.
#include "ep/dispatch_sender.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"

namespace wideep::ep {

DispatchSender::DispatchSender(const GroupBuffers& buffers, NodeCrossing* crossing)
    : buffers_(buffers),
      crossing_(crossing),
      delivery_(RowDelivery::create(buffers, crossing)),
      destinations_(buffers.layout.shape()),
      next_result_(static_cast<size_t>(buffers.num_ranks)),
      sent_entries_(static_cast<size_t>(buffers.num_ranks)) {
  // Stays empty if every rank returns its own results; record_reduced_results tests for that.
  if (crossing == nullptr || !crossing->sums_on_nodes()) return;
  for (int rank = 0; rank < buffers.num_ranks; ++rank) node_of_.push_back(crossing->node_of(rank));
}

// Slots are checked while tokens are sent. A separate pass would read all slots twice.
Status DispatchSender::send(const DispatchBatch& batch, DispatchCall& call) {
  WIDEEP_TRY(check(batch, call));
  start(batch, call);
  for (int token = 0; token < batch.num_tokens; ++token) {
    if (!send_token(batch, token, call)) return invalid_slot_error(batch, token);
  }
  delivery_->finish();
  return {};
}

Status DispatchSender::check(const DispatchBatch& batch, const DispatchCall& call) const {
  const int64_t announced = call.areas[buffers_.rank + 1] - call.areas[buffers_.rank];
  if (batch.num_tokens > announced) {
    return invalid_input(
        fmt::format("dispatch: {} tokens, expected at most {}, the number announced in begin",
                    batch.num_tokens, announced));
  }
  const size_t entries = static_cast<size_t>(batch.num_tokens) * top_k();
  if (batch.slots.size() != entries) {
    return invalid_input(fmt::format("dispatch: {} slots, expected {} tokens × top-{}",
                                     batch.slots.size(), batch.num_tokens, top_k()));
  }
  const size_t weights = buffers_.reduced() ? entries : 0;
  if (batch.weights.size() != weights) {
    return invalid_input(
        fmt::format("dispatch: {} router weights, expected {}", batch.weights.size(), weights));
  }
  return {};
}

// Finds the slot that TokenDestinations::find has refused. find itself reports only that there is
// one, to keep its loop short.
Status DispatchSender::invalid_slot_error(const DispatchBatch& batch, int token) const {
  const DispatchShape& shape = buffers_.layout.shape();
  std::vector<int> slots_of_owner(shape.num_owners());
  for (const int32_t slot : batch.slots.subspan(static_cast<size_t>(token) * top_k(), top_k())) {
    if (slot < 0 || slot >= shape.num_slots()) {
      return invalid_input(fmt::format("dispatch: token {} has slot {}, expected 0 to {}", token,
                                       slot, shape.num_slots() - 1));
    }
    const int owner = slot / shape.local_slots();
    if (++slots_of_owner[owner] <= shape.local_slots()) continue;
    return invalid_input(
        fmt::format("dispatch: token {} has a slot of rank {} twice", token, owner));
  }
  return {};
}

// The call's vectors keep their memory from an earlier call, so that after the first calls nothing
// is allocated.
void DispatchSender::start(const DispatchBatch& batch, DispatchCall& call) {
  const BufferLayout& layout = buffers_.layout;
  call.results.resize(batch.slots.size() * static_cast<size_t>(layout.shape().num_slices));
  call.num_results.resize(buffers_.reduced() ? batch.num_tokens : 0);
  call.own_result.resize(batch.num_tokens);
  call.own_rows.clear();
  std::fill(sent_entries_.begin(), sent_entries_.end(), 0);
  for (int rank = 0; rank < buffers_.num_ranks; ++rank) {
    next_result_[rank] = rank == buffers_.rank
                             ? call.own_results
                             : layout.result(buffers_.segments[rank], call.areas[buffers_.rank], 0);
  }
  delivery_->start(call);
}

// False: the token's slots are invalid.
bool DispatchSender::send_token(const DispatchBatch& batch, int token, DispatchCall& call) {
  const size_t first = static_cast<size_t>(token) * top_k();
  const RowDelivery::Token row{
      .row = batch.rows + token * batch.row_stride,
      .slots = batch.slots.data() + first,
      .weights = buffers_.reduced() ? batch.weights.data() + first : nullptr};
  if (!destinations_.find(row.slots)) return false;
  delivery_->deliver(row, destinations_);
  // Set before advance(): next_result_ still is this token's first result.
  const int rank = buffers_.rank;
  const bool has_own = destinations_.num_slots_on(buffers_.owner) > 0;
  call.own_result[token] = has_own ? next_result_[rank] : nullptr;
  if (buffers_.reduced()) {
    record_reduced_results(token, call);
  } else {
    record_results(token, call);
  }
  advance();
  return true;
}

// Combine::kExact: one result for each slot, slice by slice. The i-th slot on an owner is the i-th
// result of the token's message there.
void DispatchSender::record_results(int token, DispatchCall& call) const {
  const DispatchShape& shape = buffers_.layout.shape();
  const size_t stride = buffers_.layout.result_stride();
  const std::byte** results =
      call.results.data() + static_cast<size_t>(token) * shape.max_results_of_token();
  for (int slice = 0; slice < shape.num_slices; ++slice, results += shape.top_k) {
    std::byte* const* next_result = next_result_.data() + slice * buffers_.num_owners;
    for (int k = 0; k < shape.top_k; ++k) {
      results[k] = next_result[destinations_.owner_of_slot()[k]] +
                   static_cast<size_t>(destinations_.place_of_slot()[k]) * stride;
    }
  }
}

// Combine::kReduced: one result for each rank. If nodes send sums, the ranks of another node have
// one result together, recorded in the place of the first of them.
void DispatchSender::record_reduced_results(int token, DispatchCall& call) {
  const std::byte** const first =
      call.results.data() +
      static_cast<size_t>(token) * buffers_.layout.shape().max_results_of_token();
  const std::byte** end = first;
  recorded_nodes_.clear();
  for (const int32_t rank : destinations_.ranks()) {
    if (node_of_.empty() || buffers_.is_on_this_node[rank]) {
      *end++ = next_result_[rank];
    } else if (is_first_of_node(node_of_[rank])) {
      *end++ = crossing_->sum_from(node_of_[rank], call.areas[buffers_.rank]);
    }
  }
  call.num_results[token] = static_cast<int32_t>(end - first);
}

// Whether no earlier rank of this token is on the node. Remembers the node.
bool DispatchSender::is_first_of_node(int node) {
  const bool is_new =
      std::find(recorded_nodes_.begin(), recorded_nodes_.end(), node) == recorded_nodes_.end();
  if (is_new) recorded_nodes_.push_back(node);
  return is_new;
}

// Moves next_result_ past the results of this token. The last loop over its owners, so it also
// clears their counts (take_slots_on).
void DispatchSender::advance() {
  const size_t stride = buffers_.layout.result_stride();
  const int num_ranks = buffers_.num_ranks, num_owners = buffers_.num_owners;
  for (const int32_t owner : destinations_.owners()) {
    const int32_t entries = destinations_.take_slots_on(owner);
    const size_t num_results = buffers_.reduced() ? 1 : static_cast<size_t>(entries);
    for (int rank = owner; rank < num_ranks; rank += num_owners) {
      sent_entries_[rank] += entries;
      next_result_[rank] += num_results * stride;
    }
  }
}

}  // namespace wideep::ep
