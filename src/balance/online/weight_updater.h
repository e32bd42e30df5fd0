// SPDX-License-Identifier: Apache-2.0
//
// A rank's background thread, which copies experts from the host pool into spare records as the
// board's plans require, and passes finished layers to the engine.
//
// The engine's thread never waits for it: before each iteration it reads one atomic per layer, and
// for a finished layer it exchanges pointers. It makes no system call, takes no lock and allocates
// nothing here.
//
// Each copy is compared with the pool's hash. A copy that differs is repeated; after three failures
// all ranks give up the layer's update, and serving goes on as before.
//
//   before each iteration, on the engine's thread:
//     updater.write_states(words);             // the words that ranks exchange
//     ... exchange ...
//     updater.apply(decide(words_of_all), [&](const PublishedLayer& layer) { ... switch ... });
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/aligned_bytes.h"
#include "online/board_relay.h"
#include "online/priority_lender.h"
#include "online/update_board.h"
#include "online/update_state.h"
#include "weights/host_pool.h"

namespace wideep::online {

// A slot of this rank and its new record; after the switch, its old record.
struct SlotRecord {
  int local_slot = 0;
  std::byte* record = nullptr;
};

// A finished layer for the engine.
struct PublishedLayer {
  int layer = 0;
  std::span<const int32_t> slot_to_expert;  // [num_slots], of all ranks
  std::span<const double> shares;           // [num_slots], empty for equal ones
  std::span<SlotRecord> slots;              // the slots whose records the engine exchanges
};

// The result of a layer's last update.
struct Outcome {
  uint32_t generation = 0;  // of its plan; 0: no update has ended yet
  bool published = false;
  int64_t iteration = 0;  // the first with it
};

// For tests: called with each copy before it is verified; may corrupt or delay it.
using CopyHook = std::function<void(int layer, int expert, std::byte* record)>;

struct UpdaterOptions {
  int rank = 0;
  int num_spares = 0;           // spare records, at least 1
  std::vector<int> processors;  // of its thread; empty: the caller's
  std::vector<int> layers;      // the model's numbers of the layers, for traces; empty: 0, 1, ...
  std::chrono::milliseconds lend_after{20};  // copies so late get normal priority
  CopyHook on_copy;
  const BoardRelay* relay = nullptr;  // null if all ranks are on one node
};

class WeightUpdater {
 public:
  // slot_to_expert: of every layer, at the start of serving. board and pool must outlive the
  // updater. Spares are allocated near the processors of the calling thread.
  WeightUpdater(UpdateBoard& board, const weights::HostPool& pool,
                const std::vector<std::vector<int32_t>>& slot_to_expert, UpdaterOptions options);
  ~WeightUpdater() { stop(); }
  void stop();  // ends the thread; aborts a copy under way
  WeightUpdater(const WeightUpdater&) = delete;
  WeightUpdater& operator=(const WeightUpdater&) = delete;

  // ---- the engine's thread, between iterations ----

  void write_states(transport::AgreedWords& words) const;

  // Calls switch_layer(PublishedLayer) for each layer that all ranks switch now. It must exchange
  // the records of layer.slots and leave the old ones there.
  template <typename SwitchLayer>
  void apply(const Decision& decision, int64_t iteration, SwitchLayer switch_layer);

  // ---- any thread ----

  Outcome outcome(int layer) const;
  int first_slot() const { return first_slot_; }  // of this rank

 private:
  // Owned by one of two threads, depending on its state (update_state.h).
  struct Update {
    std::atomic<UpdateState> state{UpdateState::kIdle};
    uint32_t generation = 0;      // of the last plan that was begun
    std::vector<int32_t> target;  // [num_slots]
    std::vector<double> shares;   // [num_slots] or empty
    std::vector<SlotRecord> slots;
    std::vector<int32_t> slot_to_expert;  // [num_slots] before the update
    // For outcome(): the generation · 2, + 1 if it was published: one atomic, so that both agree.
    std::atomic<uint64_t> ended{0};
    std::atomic<int64_t> ended_iteration{0};

    void end(UpdateState how, int64_t iteration);
  };

  void run();
  bool look();
  void take_back(Update& update);
  bool enough_spares(const Update& update, std::span<const int32_t> target) const;
  void begin(int layer, Update& update);
  bool copy_expert(int layer, int expert, std::byte* record);
  void count_cpu_time();
  void send_counters();

  UpdateBoard& board_;
  const weights::HostPool& pool_;
  UpdaterOptions options_;
  int slots_per_rank_, first_slot_;
  int slice_;
  base::AlignedBytes spare_bytes_;
  std::vector<std::byte*> spares_;  // free ones; only the updater's thread uses them
  int64_t counters_sent_ns_ = 0;    // time of the last send_counters()
  std::unique_ptr<Update[]> updates_;
  std::atomic<bool> stop_{false};
  PriorityLender lender_;
  std::thread thread_;  // last: it uses everything above
};

template <typename SwitchLayer>
void WeightUpdater::apply(const Decision& decision, int64_t iteration, SwitchLayer switch_layer) {
  if (!any(decision.publish) && !any(decision.cancel)) return;
  for (int layer = 0; layer < board_.shape().num_layers; ++layer) {
    Update& update = updates_[layer];
    if (has(decision.cancel, layer)) {
      update.end(UpdateState::kCancelled, iteration);
    } else if (has(decision.publish, layer)) {
      switch_layer(PublishedLayer{layer, update.target, update.shares, update.slots});
      update.end(UpdateState::kPublished, iteration);
    }
  }
}

}  // namespace wideep::online
