// SPDX-License-Identifier: Apache-2.0
//
// Reads the messages that a rank receives in a call: those of each source as they arrive, and when
// all have arrived, sorts the rows by slot. Does not wait.
//
//   start → take(source) for every source, in any order → finish
//
// Thread safety: one thread; after finish, any thread may read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/dispatch_call.h"

namespace wideep::ep {

// A received row for one of this rank's slots, and where its result has to be written.
struct ExpertRow {
  const std::byte* row = nullptr;  // [row_bytes]; of this rank's own tokens: the caller's row
  std::byte* result = nullptr;     // [result_bytes]; Combine::kReduced: null
  int32_t entry = 0;               // index of this ExpertRow among all of the call
  int32_t message = 0;             // index of the message; one message may be for several slots
};

// Combine::kReduced: a received token, and the result row that is sent back for it.
struct ReceivedToken {
  std::span<const float> weights;  // of its slots on this rank, in top-k order
  int32_t first_entry = 0;      // ExpertRow::entry of the first of these slots; the others follow
  std::byte* result = nullptr;  // [result_bytes]
};

class DispatchReceiver {
 public:
  // buffers outlive the receiver.
  explicit DispatchReceiver(const GroupBuffers& buffers);

  // Begins a call and drops the one before. `call` outlives it.
  void start(const DispatchCall& call);
  // Prefetches the first lists of slots of a source whose messages have arrived.
  void prefetch(int source, int num_messages) const;
  // Reads the lists of slots of a source whose messages have arrived. REQUIRES: once per source.
  void take(int source, int num_messages);
  // Sorts the rows. REQUIRES: the messages of all sources have been taken.
  void finish();

  // After finish, until the next start; see DispatchCombine.
  std::span<const ExpertRow> rows_of_slot(int local_slot) const {
    return {rows_.data() + slot_start_[local_slot],
            static_cast<size_t>(slot_start_[local_slot + 1] - slot_start_[local_slot])};
  }
  int num_entries() const { return static_cast<int>(rows_.size()); }
  int num_messages() const { return num_messages_; }
  std::span<const ReceivedToken> received_tokens() const {
    return std::span(tokens_).first(buffers_.reduced() ? static_cast<size_t>(num_messages_) : 0);
  }
  // The number of result rows for a source.
  int num_results_for(int source) const { return num_results_for_[source]; }

 private:
  // One slot of a message.
  struct Arrival {
    int32_t slot;     // local
    int32_t message;  // index among the messages of its source
    float weight;     // Combine::kReduced
  };
  // The location of a source's messages.
  struct Messages {
    std::byte* segment;
    int64_t area;
  };

  Messages messages_of(int source) const;
  std::span<const Arrival> arrivals_from(int source) const {
    return std::span(arrivals_[source]).first(num_arrivals_[source]);
  }
  std::byte* first_result_for(int source) const;
  Arrival* take_slots(const Messages& messages, int index, Arrival* arrival);
  int32_t sort_source(int source, int32_t first_entry);
  void list_tokens(int source, int32_t first_entry);

  const GroupBuffers& buffers_;
  int32_t first_slot_;                  // number of this rank's first slot in messages
  const DispatchCall* call_ = nullptr;  // the current call
  // [ep_size] in the order of the messages. Only the first num_arrivals_ are of the current call.
  std::vector<std::vector<Arrival>> arrivals_;
  std::vector<int32_t> num_arrivals_;     // [ep_size]
  std::vector<int32_t> num_results_for_;  // [ep_size]
  // [local_slots + 1] index in rows_ of each slot's first row. Before finish: the number of rows
  // of the previous slot, followed by [top_k] counters of other ranks' slots, which are not used.
  std::vector<int32_t> slot_start_;
  std::vector<int32_t> slot_fill_;  // [local_slots] index in rows_ of a slot's next row
  std::vector<ExpertRow> rows_;     // [num_entries] by slot, then source, then message
  std::vector<float> weights_;      // [num_entries] by entry; Combine::kReduced
  int num_messages_ = 0;
  std::vector<ReceivedToken> tokens_;  // [at least num_messages]; Combine::kReduced
};

}  // namespace wideep::ep
