// SPDX-License-Identifier: Apache-2.0
#include "server/router_prefix_index.h"

#include <bit>

namespace wideep::server {
namespace {

// A bijection that spreads every bit (SplitMix64).
uint64_t spread(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

PrefixIndex::PrefixIndex(size_t num_replicas, size_t max_entries)
    : max_entries_(max_entries),
      generations_(num_replicas, 0),
      slots_(std::bit_ceil(max_entries), kNone) {}

uint64_t PrefixIndex::key_of(size_t replica, uint64_t name) const {
  return spread(name ^ spread(replica + 1 + (generations_[replica] << 16)));
}

uint32_t PrefixIndex::find(uint64_t key) const {
  uint32_t entry = slots_[slot_of(key)];
  while (entry != kNone && entries_[entry].key != key) entry = entries_[entry].next;
  return entry;
}

void PrefixIndex::add(size_t replica, std::span<const uint64_t> chain, uint32_t now) {
  if (chain.size() > max_entries_) chain = chain.first(max_entries_);
  for (size_t i = chain.size(); i-- > 0;) {
    const uint64_t key = key_of(replica, chain[i]);
    uint32_t entry = find(key);
    if (entry == kNone) {
      entry = make(key);
    } else {
      leave_order(entry);
    }
    entries_[entry].time = now;
    become_newest(entry);
  }
}

size_t PrefixIndex::match(size_t replica, std::span<const uint64_t> chain, uint32_t now,
                          uint32_t max_age) const {
  const auto is_there = [&](size_t i) {
    const uint32_t entry = find(key_of(replica, chain[i]));
    return entry != kNone && now - entries_[entry].time <= max_age;
  };
  size_t known = 0, unknown = chain.size();
  while (known < unknown) {
    const size_t middle = known + (unknown - known) / 2;
    if (is_there(middle)) {
      known = middle + 1;
    } else {
      unknown = middle;
    }
  }
  return known;
}

// In no order of use yet.
uint32_t PrefixIndex::make(uint64_t key) {
  uint32_t entry = oldest_;
  if (entries_.size() < max_entries_) {
    entry = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    leave_slot(entry);
    leave_order(entry);
  }
  uint32_t& first = slots_[slot_of(key)];
  entries_[entry] = {.key = key, .next = first};
  first = entry;
  return entry;
}

void PrefixIndex::leave_slot(uint32_t entry) {
  uint32_t* link = &slots_[slot_of(entries_[entry].key)];
  while (*link != entry) link = &entries_[*link].next;
  *link = entries_[entry].next;
}

void PrefixIndex::leave_order(uint32_t entry) {
  const Entry& left = entries_[entry];
  (left.newer == kNone ? newest_ : entries_[left.newer].older) = left.older;
  (left.older == kNone ? oldest_ : entries_[left.older].newer) = left.newer;
}

void PrefixIndex::become_newest(uint32_t entry) {
  entries_[entry].newer = kNone;
  entries_[entry].older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

}  // namespace wideep::server
