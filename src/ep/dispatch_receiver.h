// SPDX-License-Identifier: Apache-2.0
//
// What a rank does with the messages that it gets in a call: it takes those of each source as they
// come, and when all have come sorts the rows by the slot that they are for. It waits for nobody.
//
//   start → take(source) for every source, in any order → finish
//
// Thread safety: one thread; after finish, many may read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/dispatch_call.h"

namespace wideep::ep {

// A row that this rank has received for one of its slots, and where its result belongs.
struct ExpertRow {
  const std::byte* row =
      nullptr;                  // [row_bytes]; of this rank's own tokens: where the caller has it
  std::byte* result = nullptr;  // [result_bytes]; Combine::kReduced: null
  int32_t entry = 0;            // numbers all ExpertRows of the call
  int32_t message = 0;          // numbers the received rows: one may be for several slots
};

// Combine::kReduced: a token that this rank has received, and the row that goes back for it.
struct ReceivedToken {
  std::span<const float> weights;  // of its slots here, in top-k order
  int32_t first_entry = 0;         // ExpertRow::entry of the first of these; the others follow
  std::byte* result = nullptr;     // [result_bytes]
};

class DispatchReceiver {
 public:
  // buffers outlives the receiver.
  explicit DispatchReceiver(const GroupBuffers& buffers);

  // Forgets the call before.
  void start(const DispatchCall& call);
  // The messages of a source have come, so many: fetches the first of them into the cache; and
  // looks at all of them.
  void prefetch(int source, int num_messages) const;
  void take(int source, int num_messages);
  // All sources' messages have been taken.
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
  // How many result rows go back to a source.
  int num_results_for(int source) const { return num_results_for_[source]; }

 private:
  // A row for a slot, as its message says.
  struct Arrival {
    int32_t slot;     // local
    int32_t message;  // of its source
    float weight;     // Combine::kReduced
  };
  // Where the messages of a source lie.
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
  int32_t first_slot_;                          // this rank's first slot as messages number them
  const DispatchCall* call_ = nullptr;          // since start
  std::vector<std::vector<Arrival>> arrivals_;  // [ep_size] in the order of the messages; of which
  std::vector<int32_t> num_arrivals_;           // [ep_size] so many are of this call
  std::vector<int32_t> num_results_for_;        // [ep_size]
  // [slots_per_rank + 1] where each slot's rows begin in rows_. Until finish: how many rows the
  // slot before has, and behind them what take_slots has counted in vain.
  std::vector<int32_t> slot_start_;
  std::vector<int32_t> slot_fill_;  // [slots_per_rank] where a slot's next row goes
  std::vector<ExpertRow> rows_;     // [num_entries] by slot, then source, then message
  std::vector<float> weights_;      // [num_entries] by entry; Combine::kReduced
  int num_messages_ = 0;
  std::vector<ReceivedToken> tokens_;  // [at least num_messages]; Combine::kReduced
};

}  // namespace wideep::ep
