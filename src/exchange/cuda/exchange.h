// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of dispatch and combine share: a rank's view of the group, its state on the
// device, and its first failure.
//
// A call is the kernels of one MoE layer in one iteration, in this order on one stream:
//
//   prepare   counts of tokens per expert, for all ranks; only if slots are chosen by them
//   choose    the slots of tokens, by given shares or by those counts
//   index     where each token's messages go, and how many each rank gets
//   dispatch  writes the messages, then raises the flag
//   receive   awaits the messages of all ranks, and lists the rows of each slot; small rounds do
//             index, dispatch and receive in one kernel
//   (experts) write one result row per received row and slot
//   reduce    one row of those per message, if results are reduced
//   combine   raises the flag that the results are there, awaits those of all ranks, and sums up
//
// Sizes are on the device and the number of the call is counted there, so that a captured graph can
// be replayed. Why no buffer is overwritten while a rank still reads it: see
// ep/dispatch_combine.h; a rank begins a call after its combine of the call before.
//
// Errors: the first one on a rank is kept in its state (RankState::failure). The rank tells all
// others, every wait of theirs ends with kPeerFailed, and all later kernels do nothing.
//
// Thread safety: one stream per rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/buffer_layout.h"
#include "wideep/status.h"

namespace wideep::cuda {

enum class FailureCode : uint32_t {
  kNone,
  kDeadline,       // a peer's flag did not come
  kPeerFailed,     // a peer has failed first
  kTooManyTokens,  // more than max_tokens
  kBadSlot,        // a slot that does not exist, or twice in a token
  kInactiveRank,   // a slot of a rank that is not active
};

struct Failure {
  FailureCode code;
  int32_t peer;  // the rank that was awaited, or that has the slot; −1: none
  int32_t layer;
  int32_t channel;  // what was awaited; −1: nothing
  uint32_t call;
  int32_t token;  // −1: none
};

// A rank's state on its device, zero at the start except active_ranks.
struct RankState {
  uint32_t calls_done;       // the number of the last finished call
  uint32_t blocks_sent;      // of this call's dispatch
  uint32_t blocks_combined;  // of this call's combine
  uint32_t is_failed;        // the first thread to exchange 0 for 1 writes the failure
  Failure failure;
  uint32_t active_ranks[kMaxRanks / 32];  // bits: ranks that take part; the host may clear some
};

// One rank's view. Immutable during a call.
struct Exchange {
  BufferLayout layout;
  int32_t rank = 0;
  uint64_t deadline_ns = 0;              // of every single wait
  std::byte* const* segments = nullptr;  // [ep_size] in this device's address space
  RankState* state = nullptr;
  int32_t* message_of = nullptr;  // [ep_size, max_tokens] a token's message to a rank; −1: none
  int32_t* ordinals = nullptr;    // [max_tokens, top_k] see BufferLayout
};

// The tokens of a call.
struct Tokens {
  const int32_t* num_tokens = nullptr;  // on the device
  const int32_t* slots = nullptr;       // [num_tokens, top_k] global slot ids, distinct in a token
  const float* weights = nullptr;       // [num_tokens, top_k] router weights
};

// ok, or the failure with rank, peer and layer.
Status failure_status(int rank, const Failure& failure);

}  // namespace wideep::cuda
