// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine as a library, for engines other than wideep's: sends rows of bytes between
// the ranks of one machine (processes or threads) and brings result rows back. The caller defines
// what a row contains.
//
//   auto group = CommunicatorGroup::create({.num_ranks = 2, .slots_per_rank = 4, .top_k = 2,
//                                           .max_tokens = 64, .row_bytes = 512,
//                                           .result_bytes = 512});
//   // ... fork, or start a thread, for each rank; in each of them:
//   auto communicator = group->join(rank);
//   for (;;) {
//     communicator->dispatch(rows, row_stride, num_tokens, slots);   // this rank's tokens
//     for (int slot = 0; slot < 4; ++slot)
//       for (const ReceivedRow& row : communicator->rows_of_slot(slot))
//         my_expert(slot, row.row, row.result);
//     communicator->combine();
//     for (int token = 0; token < num_tokens; ++token)
//       my_sum(communicator->results(token));                        // [top_k], in top-k order
//   }
//
// Slots are numbered over the group: slot s is on rank s / slots_per_rank, as its local slot s %
// slots_per_rank. The caller decides which expert is in which slot (balancer.h plans it).
//
// dispatch and combine are collective: every rank calls them equally often and in the same order,
// also with 0 tokens. A row travels at most once to each rank, however many of its slots are there;
// one result row comes back for each slot. Nothing else is copied: rows are written directly into
// the receiving rank's memory, and results are read in place.
//
// Memory is anonymous (nothing in /dev/shm) and is freed with the last process that maps it. Each
// rank reserves at most (num_ranks · max_tokens) · (row_bytes + min(top_k, slots_per_rank) ·
// result_bytes) bytes; only pages that are written take memory.
//
// Errors: wrong arguments are kInvalidInput; a wait beyond the timeout is kDeadlineExceeded and
// names the missing rank. Either one ends the group: every rank's current or next call returns the
// first error. A dead rank is noticed only by a deadline; a process that supervises the ranks can
// end the group earlier with fail().
//
// Thread safety: CommunicatorGroup: any thread. Communicator: one thread at a time; many threads
// may read the received rows and write the results.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "wideep/status.h"

namespace wideep::ep {

struct CommunicatorOptions {
  int num_ranks = 1;
  int slots_per_rank = 1;
  int top_k = 1;            // slots of each token, at most num_ranks · slots_per_rank
  int max_tokens = 1;       // of each rank in a dispatch
  size_t row_bytes = 0;     // of a dispatched row
  size_t result_bytes = 0;  // of the row that a slot returns
  std::chrono::milliseconds timeout{30'000};  // of every single wait
};

// A row received for a slot, and the place for the slot's result, which must be written before
// combine. Both are 16-byte aligned, except the rows of this rank's own tokens: these are not
// copied.
struct ReceivedRow {
  const std::byte* row = nullptr;  // [row_bytes]; of own tokens: the pointer given to dispatch
  std::byte* result = nullptr;     // [result_bytes]
};

// What the caller has written as results, for sum_results.
enum class ResultType { kBf16, kF32 };

class CommunicatorGroup;

// One rank's access to the group. Move-only; a moved-from communicator is closed.
class Communicator {
 public:
  Communicator();  // closed: every call is an error
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const;  // −1: closed

  // Sends the rows of this rank's tokens to the ranks of their slots, and waits for the rows of all
  // other ranks. rows: [num_tokens] rows of row_bytes, row_stride bytes apart; they must not change
  // before combine. slots: [num_tokens, top_k], distinct within a token. Errors (invalid input):
  // closed; the previous dispatch has no combine yet; more than max_tokens; a slot out of range or
  // twice in a token; a number of slots other than num_tokens · top_k.
  Status dispatch(const void* rows, size_t row_stride, int num_tokens,
                  std::span<const int32_t> slots);

  // Between dispatch and combine: the rows received for one of this rank's slots, 0 …
  // slots_per_rank − 1, ordered by source rank and then by token. Empty otherwise.
  std::span<const ReceivedRow> rows_of_slot(int slot) const;

  // Publishes that all results of this rank's slots are written, and waits for the results of this
  // rank's tokens. Errors (invalid input): closed; not after a dispatch.
  Status combine();

  // After combine, until the next dispatch: the results of one of this rank's tokens in the order
  // of its slots: [top_k] rows of result_bytes. Empty otherwise.
  std::span<const std::byte* const> results(int token) const;

  // The first of results(token) that a slot of this rank has written; null if there is none. No
  // other rank reads it, so the caller may overwrite it with the sum of the results: it is already
  // in this core's caches.
  std::byte* own_result(int token) const;

  // The weighted sum of results(token): Σ_k weights[k] · results[k] in top-k order in float32, one
  // fused multiply-add each, then plus shared, rounded once. These are the bits that a device's
  // combine has (device_communicator.h). weights: [top_k]; shared: [hidden], or null: none; out:
  // [hidden] bf16, hidden being result_bytes / 2, or / 4 of float32; may be own_result(token).
  // Errors (invalid input): where results(token) is empty; result_bytes is not of whole values.
  Status sum_results(int token, ResultType type, const float* weights, const float* shared,
                     uint16_t* out) const;

  // Ends the group: every rank's call returns this message (failed) from now on.
  void fail(const std::string& message);

  // Leaves the group: no more calls follow. The destructor does the same.
  void close();

 private:
  friend class CommunicatorGroup;
  struct State;
  explicit Communicator(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// The group that ranks join. A rank that is a process must be forked from the one that created it.
class CommunicatorGroup {
 public:
  // Errors (invalid input): numbers out of range; failed: the kernel refuses the memory.
  static Result<CommunicatorGroup> create(const CommunicatorOptions& options);
  ~CommunicatorGroup();
  CommunicatorGroup(CommunicatorGroup&&) noexcept;
  CommunicatorGroup& operator=(CommunicatorGroup&&) noexcept;

  // Collective: waits for all ranks. The communicator may outlive the group. Errors (invalid
  // input): a rank that does not exist or has already joined; kDeadlineExceeded.
  Result<Communicator> join(int rank);

  // As Communicator::fail, for a process or thread that supervises the ranks.
  void fail(const std::string& message);

 private:
  struct State;
  explicit CommunicatorGroup(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace wideep::ep
