// SPDX-License-Identifier: Apache-2.0
//
// An update belongs to one thread at a time, and its state says to which: the updater's until it
// is ready or failed, the engine's until it is published or cancelled. Passing it on is one
// release store, so neither thread waits. Records are taken back before new plans are looked at,
// because these may need them. The copy is hashed while it is made, in one pass over the memory,
// and its time is limited by what others need: the thread has the lowest priority, and looks
// whether to stop in the middle of a record.
#include "online/weight_updater.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/cpu_time.h"
#include "base/numa.h"
#include "base/trace.h"
#include "online/background_thread.h"

namespace wideep::online {
namespace {

constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kLookInterval{20};
constexpr std::chrono::milliseconds kBusyInterval{1};  // a plan waits for spares
constexpr int64_t kSendIntervalNs = 200'000'000;       // of counters, to another node

}  // namespace

WeightUpdater::WeightUpdater(UpdateBoard& board, const weights::HostPool& pool,
                             const std::vector<std::vector<int32_t>>& slot_to_expert,
                             UpdaterOptions options)
    : board_(board),
      pool_(pool),
      options_(std::move(options)),
      slots_per_rank_(board.shape().num_slots / board.shape().owners()),
      first_slot_(options_.rank % board.shape().owners() * slots_per_rank_),
      slice_(options_.rank / board.shape().owners() % board.shape().num_slices),
      spare_bytes_(static_cast<size_t>(options_.num_spares) * pool.shape().record_bytes()),
      updates_(new Update[slot_to_expert.size()]),
      lender_(board, board.updater(options_.rank), options_.lend_after, options_.processors) {
  WIDEEP_CHECK_GE(options_.num_spares, 1);
  // The updater's thread will write them first and may run anywhere, so first touch would place
  // them on a random node.
  base::keep_near_this_thread(spare_bytes_.data(), spare_bytes_.size());
  for (int i = 0; i < options_.num_spares; ++i) {
    spares_.push_back(spare_bytes_.data() + static_cast<size_t>(i) * pool.shape().record_bytes());
  }
  for (size_t layer = 0; layer < slot_to_expert.size(); ++layer) {
    updates_[layer].slot_to_expert = slot_to_expert[layer];
    updates_[layer].slots.reserve(static_cast<size_t>(slots_per_rank_));
  }
  thread_ = std::thread(
      [this, trace = base::trace_of_thread.on_lane(base::Lane::kCopies, options_.layers)] {
        base::trace_of_thread = trace;
        run();
      });
}

void WeightUpdater::stop() {
  lender_.stop();
  stop_ = true;
  board_.wake();
  if (thread_.joinable()) thread_.join();
}

void WeightUpdater::write_states(transport::AgreedWords& words) const {
  for (int layer = 0; layer < board_.shape().num_layers; ++layer) {
    // Pairs with the release in begin(): after a rank has published "ready", apply() may read the
    // target and the records.
    add_state(updates_[layer].state.load(std::memory_order_acquire), layer, words);
  }
}

// Runs on the engine's thread. The state comes last: its release store passes the update, with its
// generation, back to the updater's thread. `ended` publishes ended_iteration to outcome().
void WeightUpdater::Update::end(UpdateState how, int64_t iteration) {
  ended_iteration.store(iteration, std::memory_order_relaxed);
  ended.store(uint64_t{generation} * 2 + (how == UpdateState::kPublished ? 1 : 0),
              std::memory_order_release);
  state.store(how, std::memory_order_release);
}

Outcome WeightUpdater::outcome(int layer) const {
  // ended_iteration belongs to the same update: the layer's next update is posted only after the
  // balancer has read this one.
  const uint64_t ended = updates_[layer].ended.load(std::memory_order_acquire);
  return {static_cast<uint32_t>(ended / 2), ended % 2 == 1,
          updates_[layer].ended_iteration.load(std::memory_order_relaxed)};
}

// ---- the updater's thread ----

void WeightUpdater::run() {
  become_background_thread("wideep-copy", options_.processors);
  lender_.begin();
  while (!stop_) {
    // Read before look(): a plan posted after that makes the wait return at once.
    const uint32_t seen = board_.num_posts();
    board_.updater(options_.rank).heartbeat_ns = base::wall_ns();
    const bool waits = look();
    if (!waits) lender_.done(seen);
    count_cpu_time();
    if (base::wall_ns() - counters_sent_ns_ > kSendIntervalNs) send_counters();
    board_.wait_for_post(seen, waits ? kBusyInterval : kLookInterval);
  }
  count_cpu_time();
  send_counters();
}

// All of the thread's: what it does besides copying is a cost of balancing, too.
void WeightUpdater::count_cpu_time() {
  board_.updater(options_.rank).cpu_ns = base::thread_cpu_ns();
}

void WeightUpdater::send_counters() {
  if (options_.relay == nullptr) return;
  options_.relay->send_updater_counters();
  counters_sent_ns_ = base::wall_ns();
}

// Returns true if a plan waits for spares. Takes back records first: the plans may need them.
bool WeightUpdater::look() {
  bool waits = false;
  for (int layer = 0; layer < board_.shape().num_layers && !stop_; ++layer) {
    Update& update = updates_[layer];
    const UpdateState state = update.state.load(std::memory_order_acquire);
    if (state == UpdateState::kPublished || state == UpdateState::kCancelled) take_back(update);
  }
  for (int layer = 0; layer < board_.shape().num_layers && !stop_; ++layer) {
    Update& update = updates_[layer];
    if (update.state.load(std::memory_order_acquire) != UpdateState::kIdle) continue;
    if (board_.generation(layer) == update.generation) continue;
    if (enough_spares(update, board_.slot_to_expert(layer))) {
      begin(layer, update);
    } else {
      waits = true;
    }
  }
  return waits;
}

// Puts the records that the layer no longer uses back to the spares: after a switch the old ones,
// after a cancellation the copies.
void WeightUpdater::take_back(Update& update) {
  if (update.state.load(std::memory_order_acquire) == UpdateState::kPublished) {
    update.slot_to_expert = update.target;
  }
  for (const SlotRecord& slot : update.slots) spares_.push_back(slot.record);
  update.slots.clear();
  update.state.store(UpdateState::kIdle, std::memory_order_release);
}

// The balancer posts no more than fits, but rank 0 may be an iteration ahead of this rank's engine,
// which then has not switched yet and holds records that will be spares.
bool WeightUpdater::enough_spares(const Update& update, std::span<const int32_t> target) const {
  const auto first = static_cast<size_t>(first_slot_);
  size_t changed = 0;
  for (size_t slot = first; slot < first + static_cast<size_t>(slots_per_rank_); ++slot) {
    if (target[slot] != update.slot_to_expert[slot]) ++changed;
  }
  return changed <= spares_.size();
}

void WeightUpdater::begin(int layer, Update& update) {
  const base::TraceSpan span(base::Span::kCopyLayer, layer);
  update.state.store(UpdateState::kCopying, std::memory_order_release);
  update.generation = board_.generation(layer);
  const auto target = board_.slot_to_expert(layer);
  const auto shares = board_.shares(layer);
  update.target.assign(target.begin(), target.end());
  update.shares.assign(shares.begin(), shares.end());
  bool ok = true;
  for (int slot = 0; slot < slots_per_rank_ && ok; ++slot) {
    const int32_t expert = update.target[first_slot_ + slot];
    if (expert == update.slot_to_expert[first_slot_ + slot]) continue;
    update.slots.push_back({slot, spares_.back()});
    spares_.pop_back();
    ok = copy_expert(layer, expert, update.slots.back().record);
  }
  // Pairs with the acquire in write_states(). From here on the engine owns the update.
  update.state.store(ok ? UpdateState::kReady : UpdateState::kFailed, std::memory_order_release);
}

bool WeightUpdater::copy_expert(int layer, int expert, std::byte* record) {
  UpdaterCounters& counters = board_.updater(options_.rank);
  const weights::HostPool::Address source{layer, expert, slice_};
  const size_t bytes = pool_.shape().record_bytes();
  for (int attempt = 0; attempt < kAttempts && !stop_; ++attempt) {
    base::TraceSpan span(base::Span::kCopyExpert, layer, expert);
    const int64_t start_ns = base::wall_ns();
    uint64_t hash = base::copy_and_hash(pool_.record(source), record, bytes, [&] {
      counters.heartbeat_ns = base::wall_ns();
      return !stop_;
    });
    if (options_.on_copy) {
      options_.on_copy(layer, expert, record);
      hash = base::content_hash(record, bytes);
    }
    counters.copy_ns += base::wall_ns() - start_ns;
    count_cpu_time();
    if (stop_) break;  // the copy may have been left in the middle
    if (hash == pool_.content_hash(source)) {
      ++counters.copied_experts;
      counters.copied_bytes += static_cast<int64_t>(bytes);
      counters.lent_copies += lender_.has_lent() ? 1 : 0;
      return true;
    }
    ++counters.hash_failures;
    span.change_to(base::Span::kCopyWrongHash);
  }
  return false;
}

}  // namespace wideep::online
