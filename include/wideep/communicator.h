// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine as a library, for an engine of its own: rows in, rows out, between ranks of
// one machine that are processes or threads. What a row is made of is the caller's.
//
//   auto group = CommunicatorGroup::create({.num_ranks = 2, .slots_per_rank = 4, .top_k = 2,
//                                           .max_tokens = 64, .row_bytes = 512,
//                                           .result_bytes = 512});
//   // ... fork, or start a thread, for each rank; in each of them:
//   auto communicator = group->join(rank);
//   for (;;) {
//     communicator->dispatch(rows, row_stride, num_tokens, slots);   // mine, to where they belong
//     for (int slot = 0; slot < 4; ++slot)
//       for (const ReceivedRow& row : communicator->rows_of_slot(slot))
//         my_expert(slot, row.row, row.result);
//     communicator->combine();
//     for (int token = 0; token < num_tokens; ++token)
//       my_sum(communicator->results(token));                        // [top_k], in top-k order
//   }
//
// Slots are numbered over the group: slot s is on rank s / slots_per_rank, where it is slot
// s % slots_per_rank. Which expert sits in which slot is the caller's (balancer.h plans it).
//
// dispatch and combine are collective: every rank calls them as often as every other, one after the
// other, also with no tokens. A row travels at most once to each rank, whatever the number of its
// slots there; results come back one for each slot. Nothing is copied but that: rows go straight
// into the memory of the rank that gets them, results are read in place.
//
// Memory is anonymous (nothing in /dev/shm) and gone with the last process that has it. Each rank
// takes (num_ranks · max_tokens) · (row_bytes + min(top_k, slots_per_rank) · result_bytes) at most,
// of which only pages that are used exist.
//
// Errors: wrong arguments are kInvalidInput; a wait that lasts longer than the timeout is
// kDeadlineExceeded and names the rank that did not come. Either ends the group: every rank's call,
// now waiting or later, returns the first error. A rank that dies is not noticed but by deadlines;
// who supervises the ranks tells the others with fail().
//
// Thread safety: CommunicatorGroup: any thread. Communicator: one thread at a time; views may be
// read, and results written, by many.
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

// A row that has come for a slot, and where the slot's result is to be written before combine. Both
// are 16-byte aligned, but for the rows of my own tokens, which lie as they were given.
struct ReceivedRow {
  const std::byte* row = nullptr;  // [row_bytes]; of my own tokens: where dispatch was given it
  std::byte* result = nullptr;     // [result_bytes]
};

class CommunicatorGroup;

// One rank's end. Move-only; after a move the source is as if closed.
class Communicator {
 public:
  Communicator();  // closed: every call is an error
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const;  // −1: closed

  // Sends my tokens' rows to the ranks of their slots, and waits for those of all others.
  // rows: [num_tokens] rows of row_bytes, row_stride bytes apart; they stay as they are until
  // combine. slots: [num_tokens, top_k], those of one token distinct.
  // Errors (invalid input): closed; before the combine of the dispatch before; more than
  // max_tokens; a slot that is none, or twice in a token; another number of slots.
  Status dispatch(const void* rows, size_t row_stride, int num_tokens,
                  std::span<const int32_t> slots);

  // Between dispatch and combine: the rows for one of my slots, 0 … slots_per_rank − 1, in the
  // order of source ranks and of their tokens. Empty otherwise.
  std::span<const ReceivedRow> rows_of_slot(int slot) const;

  // Tells the sources that all results are written, and waits for those of my tokens.
  // Errors (invalid input): closed; not after a dispatch.
  Status combine();

  // After combine, until the next dispatch: my token's results in the order of its slots: [top_k]
  // rows of result_bytes. Empty otherwise.
  std::span<const std::byte* const> results(int token) const;

  // The same: that of results(token) which one of my own slots has written, the first if there are
  // several; null: none. Nobody else reads any of them, so my sum of them may be written over it:
  // it is in this core's caches.
  std::byte* own_result(int token) const;

  // Ends the group: every rank's call returns this message (failed) from now on.
  void fail(const std::string& message);

  // This rank needs no more calls. The destructor does the same.
  void close();

 private:
  friend class CommunicatorGroup;
  struct State;
  explicit Communicator(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// What ranks join. Processes are forked from the one that has created it.
class CommunicatorGroup {
 public:
  // Errors (invalid input): numbers out of range; failed: the kernel refuses the memory.
  static Result<CommunicatorGroup> create(const CommunicatorOptions& options);
  ~CommunicatorGroup();
  CommunicatorGroup(CommunicatorGroup&&) noexcept;
  CommunicatorGroup& operator=(CommunicatorGroup&&) noexcept;

  // Collective: waits for all ranks. The communicator may outlive the group.
  // Errors (invalid input): a rank that is none, or has joined already; kDeadlineExceeded.
  Result<Communicator> join(int rank);

  // As Communicator::fail, for whoever supervises the ranks.
  void fail(const std::string& message);

 private:
  struct State;
  explicit CommunicatorGroup(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace wideep::ep
