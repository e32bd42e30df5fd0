// SPDX-License-Identifier: Apache-2.0
//
// Two orders of one set of entries: by name, and of those that no other continues, by worth.
#include "store/directory_index.h"

#include <algorithm>

namespace wideep::store {

// A page continues the page before it, a state the page at whose end it was.
DirectoryIndex::Key DirectoryIndex::parent_of(const Key& key, const Entry& entry) {
  return {.name = key.kind == Kind::kPage ? entry.before : key.name, .kind = Kind::kPage};
}

bool DirectoryIndex::is_leaf(const Key& key) const {
  return key.kind == Kind::kState || !children_.contains(key.name);
}

void DirectoryIndex::rank(const Key& key, Entry& entry) {
  if (is_leaf(key)) leaves_.insert({entry.worth, entry.used_at, key});
}

void DirectoryIndex::unrank(const Key& key, const Entry& entry) {
  leaves_.erase({entry.worth, entry.used_at, key});
}

// The parent may be unknown yet, or no more: its children are counted all the same.
void DirectoryIndex::count_child(const Key& parent, int change) {
  const auto found = entries_.find(parent);
  if (found != entries_.end()) unrank(parent, found->second);
  const uint64_t count = children_[parent.name] += static_cast<uint64_t>(change);
  if (count == 0) children_.erase(parent.name);
  if (found != entries_.end()) rank(parent, found->second);
}

void DirectoryIndex::reckon(Entry& entry) const {
  uint64_t bytes = 0;
  for (const Record& record : entry.records) bytes += record.bytes();
  entry.worth = clock_ + static_cast<double>(entry.uses + 1) * entry.seconds /
                             static_cast<double>(std::max<uint64_t>(bytes, 1));
}

double DirectoryIndex::worth_of_new(double seconds, uint64_t bytes) const {
  return clock_ + seconds / static_cast<double>(bytes);
}

void DirectoryIndex::add(const RecordHead& record, uint8_t count) {
  const Key key = {.name = record.head.name, .kind = record.head.kind};
  const auto [it, is_new] = entries_.try_emplace(key);
  Entry& entry = it->second;
  if (is_new) {
    entry.before = record.head.before;
    entry.record_class = record.record_class;
    entry.page = record.head.page;
    entry.count = count;
    count_child(parent_of(key, entry), +1);
  } else {
    unrank(key, entry);
  }
  entry.records.push_back({.segment = record.segment,
                           .offset = record.offset,
                           .canonical_bytes = record.head.canonical_bytes,
                           .part = record.head.part});
  entry.seconds += record.seconds;
  entry.used_at = ++last_use_;
  reckon(entry);
  rank(key, entry);
  by_segment_[record.segment].push_back(key);
  ++count_by_segment_[record.segment];
  ++num_records_;
}

const DirectoryIndex::Entry* DirectoryIndex::find(const Key& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void DirectoryIndex::use(const Key& key, uint8_t count) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  unrank(key, entry);
  ++entry.uses;
  entry.count = count;
  entry.used_at = ++last_use_;
  reckon(entry);
  rank(key, entry);
}

void DirectoryIndex::remove(const Key& key, uint64_t segment, uint64_t offset) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const auto at = std::find_if(entry.records.begin(), entry.records.end(), [&](const Record& r) {
    return r.segment == segment && r.offset == offset;
  });
  if (at == entry.records.end()) return;
  unrank(key, entry);
  const auto before = static_cast<double>(entry.records.size());
  entry.seconds *= (before - 1) / before;
  entry.records.erase(at);
  --count_by_segment_[segment];
  --num_records_;
  if (!entry.records.empty()) {
    reckon(entry);
    rank(key, entry);
    return;
  }
  const Key parent = parent_of(key, entry);
  entries_.erase(found);
  count_child(parent, -1);
}

void DirectoryIndex::remove_segment(uint64_t segment) {
  const auto keys = by_segment_.extract(segment);
  if (keys.empty()) return;
  for (const Key& key : keys.mapped()) {
    const Entry* entry = find(key);
    if (entry == nullptr) continue;
    const std::vector<Record> records = entry->records;
    for (const Record& record : records) {
      if (record.segment == segment) remove(key, segment, record.offset);
    }
  }
  count_by_segment_.erase(segment);
}

uint64_t DirectoryIndex::num_records(uint64_t segment) const {
  const auto found = count_by_segment_.find(segment);
  return found == count_by_segment_.end() ? 0 : found->second;
}

std::optional<DirectoryIndex::Key> DirectoryIndex::least(
    const std::function<bool(const Entry&)>& may_go) const {
  for (const Rank& rank : leaves_) {
    if (may_go(entries_.at(rank.key))) return rank.key;
  }
  return std::nullopt;
}

std::optional<DirectoryIndex::Key> DirectoryIndex::deepest(
    const std::function<bool(const Entry&)>& may_go) const {
  const std::pair<const Key, Entry>* found = nullptr;
  for (const auto& item : entries_) {
    if ((found == nullptr || item.second.page > found->second.page) && may_go(item.second)) {
      found = &item;
    }
  }
  return found == nullptr ? std::nullopt : std::optional(found->first);
}

}  // namespace wideep::store
