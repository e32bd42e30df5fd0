// SPDX-License-Identifier: Apache-2.0
#include "store/host_tier.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "store/checked_copy.h"

namespace wideep::store {

Result<std::unique_ptr<HostTier>> HostTier::open(const base::SharedBytes& memory) {
  WIDEEP_TRY_ASSIGN(const HostIndex index, HostIndex::open(memory));
  return std::unique_ptr<HostTier>(new HostTier(index));
}

std::vector<bool> HostTier::find(std::span<const Head> heads, double lease_seconds) {
  constexpr size_t kHeadsPerLock = 64;  // others get their turn between
  std::vector<bool> found(heads.size());
  for (size_t first = 0; first < heads.size(); first += kHeadsPerLock) {
    const HostIndex::Lock lock(index_);
    if (!lock.status().ok()) {
      ++counts_.failures;
      break;
    }
    const size_t end = std::min(heads.size(), first + kHeadsPerLock);
    for (size_t i = first; i < end; ++i) {
      const std::vector<uint32_t> slots = index_.find(heads[i]);
      found[i] = !slots.empty();
      if (lease_seconds > 0.0) index_.lease(slots, lease_seconds);
    }
  }
  return found;
}

// ---- reading ----

Status HostTier::look_up(const Head& head, std::vector<Source>& sources) {
  sources.clear();
  const HostIndex::Lock lock(index_);
  WIDEEP_TRY(lock.status());
  for (const uint32_t each : index_.find(head)) {
    if (counts_hits_) index_.used(each, true, 0.0);
    const HostIndex::Slot& slot = index_.slot(each);
    Source& source = sources.emplace_back(Source{.slot = each,
                                                 .generation = slot.generation.load(),
                                                 .hash = slot.hash,
                                                 .part = slot.head.part});
    uint32_t block = slot.first_block;
    for (uint32_t i = 0; i < slot.num_blocks; ++i, block = index_.block_after(block)) {
      source.blocks.push_back(block);
    }
  }
  return {};
}

FetchResult HostTier::copy_out(const Source& source, std::span<std::byte> into) {
  CheckedCopy copy(into.size());
  for (size_t i = 0, at = 0; at < into.size(); ++i, at += HostIndex::kBlockBytes) {
    const size_t bytes = std::min<size_t>(HostIndex::kBlockBytes, into.size() - at);
    copy.copy(index_.block(source.blocks[i]), into.data() + at, bytes);
  }
  // Whoever has overwritten a byte that was read has freed the slot before.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (index_.slot(source.slot).generation.load() != source.generation) return FetchResult::kMissing;
  if (copy.hash() == source.hash) return FetchResult::kWhole;
  const HostIndex::Lock lock(index_);
  const HostIndex::Slot& slot = index_.slot(source.slot);
  if (!lock.status().ok() || slot.generation.load() != source.generation) {
    return FetchResult::kMissing;
  }
  index_.free(source.slot);
  ++counts_.damaged;
  return FetchResult::kDamaged;
}

FetchResult HostTier::fetch_one(const FetchOrder& order, const std::vector<Source>& sources) {
  if (sources.empty()) return FetchResult::kMissing;
  if (sources.front().part == order.head.part) return copy_out(sources.front(), order.into);
  for (const Source& source : sources) {
    other_part_.resize(source.part.bytes());
    const FetchResult result = copy_out(source, other_part_);
    if (result != FetchResult::kWhole) return result;
    copy_overlap(source.part, other_part_, order.head.part, order.into);
  }
  return FetchResult::kWhole;
}

Status HostTier::fetch(std::span<const FetchOrder> orders,
                       const std::function<bool(size_t index, FetchResult result)>& done) {
  using Clock = std::chrono::steady_clock;
  std::vector<Source> sources;
  for (size_t i = 0; i < orders.size(); ++i) {
    const FetchOrder& order = orders[i];
    WIDEEP_CHECK_EQ(order.into.size(), order.head.part.bytes());
    const auto begin = Clock::now();
    if (Status status = look_up(order.head, sources); !status.ok()) {
      ++counts_.failures;
      return status;
    }
    const FetchResult result = fetch_one(order, sources);
    counts_.fetch_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    if (result == FetchResult::kWhole) {
      ++counts_.fetched;
      counts_.fetched_bytes += order.into.size();
    }
    if (!done(i, result)) break;
  }
  return {};
}

// ---- writing ----

uint64_t HostTier::copy_in(uint32_t slot, std::span<const std::byte> payload) {
  // Readers of what these blocks had before: see copy_out().
  std::atomic_thread_fence(std::memory_order_release);
  CheckedCopy copy(payload.size());
  uint32_t block = index_.slot(slot).first_block;
  for (size_t at = 0; at < payload.size(); at += HostIndex::kBlockBytes) {
    const size_t bytes = std::min<size_t>(HostIndex::kBlockBytes, payload.size() - at);
    copy.copy(payload.data() + at, index_.block(block), bytes);
    if (at + bytes < payload.size()) block = index_.block_after(block);
  }
  return copy.hash();
}

void HostTier::free_unfinished() {
  const uint32_t slot = std::exchange(unfinished_, HostIndex::kNone);
  if (slot == HostIndex::kNone) return;
  if (index_.slot(slot).generation.load() == unfinished_generation_) index_.free(slot);
}

OfferResult HostTier::offer(const Head& head, std::span<const std::byte> payload, double seconds,
                            const std::function<bool()>& is_intact) {
  WIDEEP_CHECK_EQ(payload.size(), head.part.bytes());
  if (me_.process != ::getpid()) me_ = mark_of_this_process();
  uint32_t slot = HostIndex::kNone;
  uint64_t generation = 0;
  {
    const HostIndex::Lock lock(index_);
    if (!lock.status().ok()) {
      ++counts_.failures;
      return OfferResult::kFailed;
    }
    free_unfinished();
    const HostIndex::Taken taken = index_.take(head, seconds, me_);
    counts_.evicted += taken.evicted;
    if (taken.room == HostIndex::Room::kKnown) return OfferResult::kKnown;
    if (taken.room == HostIndex::Room::kRefused) return OfferResult::kRefused;
    slot = taken.slot;
    generation = index_.slot(slot).generation.load();
  }
  const uint64_t hash = copy_in(slot, payload);
  const bool is_whole = is_intact();
  const HostIndex::Lock lock(index_);
  if (!lock.status().ok()) {
    unfinished_ = slot;
    unfinished_generation_ = generation;
    ++counts_.failures;
    return OfferResult::kFailed;
  }
  // Another has freed it only if it cannot see that this process is alive.
  if (index_.slot(slot).generation.load() != generation) {
    ++counts_.failures;
    return OfferResult::kFailed;
  }
  if (!is_whole) {
    index_.free(slot);
    return OfferResult::kRefused;
  }
  index_.make_ready(slot, hash);
  ++counts_.taken;
  counts_.taken_bytes += payload.size();
  return OfferResult::kTaken;
}

void HostTier::forget(const Name& name, Kind kind) {
  const HostIndex::Lock lock(index_);
  if (lock.status().ok()) {
    index_.forget(name, kind);
  } else {
    ++counts_.failures;
  }
}

PlaceSize HostTier::size() {
  PlaceSize size{.max_bytes = index_.num_blocks() * HostIndex::kBlockBytes};
  const HostIndex::Lock lock(index_);
  if (!lock.status().ok()) return size;
  const HostIndex::Size now = index_.size();
  size.records = now.records;
  size.bytes = now.used_blocks * HostIndex::kBlockBytes;
  return size;
}

}  // namespace wideep::store
