// SPDX-License-Identifier: Apache-2.0
//
// The experts of a rank of which only a part is in memory: the others lie in a packed file and are
// read when the router has chosen them. Which ones stay is decided by ExpertResidency; the slots of
// those that are in memory point to them, the others are absent.
//
// In each call of a MoE layer:
//
//   experts.choose({.layer = l, .iteration = i, .num_tokens = n}, rows_of_slots);
//   if (experts.looks_ahead()) experts.expect(l + 1, weights);   // what will probably be chosen
//   for (int slot : experts.present()) ...        // compute its rows
//   for (;;) {
//     const auto slots = experts.await();         // what has come meanwhile, at least one
//     if (slots.empty()) break;                   // all are computed
//     for (int slot : slots) ...                  // compute its rows, before the next await()
//   }
//
// Memory is divided into records. Experts that do not stay pass through a few of them, in waves
// where there are more such experts; half of these are for what is expected. A disk that nobody
// waits for goes on with that, and then with what the last run has found popular, as long as memory
// is free.
//
// A record that is not what was packed is read once more; then its slot is reported with the
// others, and is still absent: the rows of its tokens cannot be computed (ResidencyCounts::lost).
// The same where the disk has not answered at the deadline; then the rest of the iteration waits for
// it no more than moments: an iteration waits once for a disk that hangs, not in every layer.
//
// Thread safety: one thread; reading has threads of its own, which begin in open().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/parts/expert_slots.h"
#include "model/parts/read_ahead.h"
#include "packed/packed_file.h"
#include "residency/expert_residency.h"
#include "residency/popularity.h"
#include "residency/residency_counts.h"
#include "weights/record_reader.h"
#include "wideep/status.h"

namespace wideep::model {

struct ResidentOptions {
  uint64_t memory = 0;                         // bytes of all records
  std::chrono::milliseconds deadline{30'000};  // of a read
  residency::ResidencyOptions policy;
  // What earlier runs have found, of these layers or others: fills memory first.
  std::optional<residency::Popularity> popularity;
  // Of the threads that read. They begin in open(), by a thread that may be bound to one processor,
  // which computes: they would take turns with it. Empty: those of that thread.
  std::vector<int> processors;
  weights::DirectInput::ReadPiece read_piece;  // for tests
};

class ResidentExperts {
 public:
  // slots: absent ones of these experts, of the placement's layers; outlive this.
  // Errors (invalid input): the file has not all of the experts; memory for less than two of them.
  // Errors (failed): as RecordReader::open; there is not enough memory.
  static Result<std::unique_ptr<ResidentExperts>> open(const packed::PackedFile& file,
                                                       ExpertSlots& slots,
                                                       const ResidentOptions& options);
  ResidentExperts(const ResidentExperts&) = delete;
  ResidentExperts& operator=(const ResidentExperts&) = delete;

  struct Call {
    int layer = 0;
    int64_t iteration = 0;
    int64_t num_tokens = 0;  // of all ranks
  };
  // rows_of_slots: [slots] rows for each of the layer's slots. Orders what is absent.
  void choose(const Call& call, std::span<const int> rows_of_slots);
  // The slots with rows that were in memory at choose().
  std::span<const int> present() const { return present_; }
  // Whether expect() is of use in this call.
  bool looks_ahead();
  // weights: [num_experts] what the tokens give each expert of a later layer, the next that
  // choose() is called with, as far as that is known. What is absent of them is read ahead if that
  // is worth it (read_ahead.h) when this call waits for nothing any more.
  void expect(int layer, std::span<const float> weights);
  // Waits for at least one of the others. Empty: there is none left. The memory of experts that do
  // not stay is used again: those of the call before are computed.
  std::span<const int> await();

  // Of the rank's experts, in all iterations so far and those of options.popularity.
  residency::Popularity popularity() const;
  // [MoE layers of the rank]
  std::span<const residency::ResidencyCounts> counts();
  const std::vector<int>& layers() const { return layers_; }  // of the model
  int num_owned() const;
  int num_records() const { return static_cast<int>(records_.size()); }
  weights::RecordCounters read() const { return reader_->counters(); }
  // For logs: "12 of 64 experts (1.2 GiB) in memory, 3 of them in passing; 8 threads, ...".
  std::string description() const;

 private:
  enum class State : uint8_t {
    kAbsent,
    kQueued,  // chosen; waits for memory
    kReading,
    kHere,
  };
  // An expert of a layer.
  struct Place {
    State state = State::kAbsent;
    bool stays = false;       // is resident, as the policy sees it
    bool is_awaited = false;  // by await()
    bool is_whole = false;    // all that was read of it so far
    bool is_fill = false;     // read because it was popular
    bool is_expected = false;
    bool was_lost = false;  // the last time, and the log says so
    int record = -1;        // while it is read, and when it is here
    int pieces_left = 0;
    const packed::Part* part = nullptr;  // null: not of this rank
  };
  // A piece that is being read. place: -1: it was late, and only its memory is waited for.
  struct Read {
    int place = -1;
    int record = -1;
  };

  ResidentExperts(ExpertSlots& slots, const ResidentOptions& options);
  Status find_parts(const packed::PackedFile& file);
  Status divide_memory();

  int index_of(const residency::ExpertPlace& place) const {
    return place.layer_idx * num_experts_ + place.expert;
  }
  Place& place(int index) { return places_[static_cast<size_t>(index)]; }
  const Place& place_of(const residency::ExpertPlace& at) const {
    return places_[static_cast<size_t>(index_of(at))];
  }

  void begin_call(const Call& call, std::span<const int> rows_of_slots);
  void take_demand(const residency::Demand& demand);
  void evict(int index);
  void await_place(int index);
  void order_queued();
  void order(int index, bool is_urgent);
  void fill_ahead();
  void order_expected();
  void settle_expected();
  void cancel(int index);
  void take(const weights::Completion& completion);
  void end_read(int index);
  void lose(int index);
  void lose_queued();
  void free_record(int record);
  void set_slots(int index, std::byte* record);
  void report(int index);
  void release_passed();

  ExpertSlots& slots_;
  ResidentOptions options_;
  std::vector<int> layers_;  // of the model
  int num_experts_ = 0;
  size_t record_bytes_ = 0;  // in whole blocks
  std::shared_ptr<base::AlignedBytes> memory_;
  std::vector<std::byte*> records_;
  std::vector<int> writes_;  // [records] pieces of late reads that may still be written to
  std::vector<bool> held_;   // [records] by a place
  std::vector<int> free_;    // records
  int num_passing_ = 0;      // records that are kept for experts that do not stay
  std::unique_ptr<residency::ExpertResidency> policy_;
  std::unique_ptr<weights::RecordReader> reader_;

  std::vector<Place> places_;                 // [layers, experts]
  std::unordered_map<uint64_t, Read> reads_;  // by ticket
  uint64_t num_tickets_ = 0;
  std::deque<int> queued_;  // places
  int num_fills_ = 0;       // places that are being read because they were popular

  ReadAhead read_ahead_;
  std::vector<float> absent_weights_;  // [experts]
  int expected_layer_idx_ = 0;
  std::vector<int> expected_;  // places that are read ahead, or were

  // Of the call.
  int layer_idx_ = 0;
  int64_t iteration_ = -1;
  int64_t deadline_ns_ = 0;             // the latest of all orders
  bool is_disk_late_ = false;           // in this iteration
  std::vector<int32_t> counts_;         // [experts] rows
  std::vector<int> rows_;               // [slots]
  std::vector<int> present_, arrived_;  // slots
  std::vector<int> computed_;           // places that await() has reported last
  int num_awaited_ = 0;

  std::vector<residency::ResidencyCounts> totals_;  // [layers]
};

}  // namespace wideep::model
