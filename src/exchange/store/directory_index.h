// SPDX-License-Identifier: Apache-2.0
//
// What a directory has, by name, and which of it is worth the least.
//
// All parts of a name are one entry and go together: the ranks of a group fetch their parts of the
// same names at the same time, so that each of them finds the same entries used, whoever wrote them.
//
// Worth (GreedyDual-Size-Frequency): clock + (uses + 1) · seconds saved ÷ bytes. The clock is the
// worth of the last entry that went, so that what is not used any more ages; nothing here asks the
// time. Among equals the one that was longest not used goes first; without seconds that is all.
// What another entry continues stays: a prefix without its beginning is of no use.
//
// Thread safety: a plain value; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "store/segment_format.h"

namespace wideep::store {

class DirectoryIndex {
 public:
  struct Key {
    Name name;
    Kind kind = Kind::kPage;
    auto operator<=>(const Key&) const = default;
  };
  struct Record {
    uint64_t segment = 0;
    uint64_t offset = 0;
    uint64_t canonical_bytes = 0;
    Part part;

    uint64_t bytes() const { return kBlockBytes + round_up_to_block(part.bytes()); }
    uint64_t end() const { return offset + bytes(); }
  };
  struct Entry {
    Name before;
    Name record_class;
    uint32_t page = 0;
    std::vector<Record> records;  // at least one
    double seconds = 0;           // of all records
    uint64_t uses = 0;
    double worth = 0;
    uint64_t used_at = 0;  // higher than of all that were used before
    uint8_t count = 0;     // of UseCounts, when it was added or used
  };

  void add(const RecordHead& record, uint8_t count = 0);
  const Entry* find(const Key& key) const;
  void use(const Key& key, uint8_t count = 0);

  // The record that lies there; others of the entry stay.
  void remove(const Key& key, uint64_t segment, uint64_t offset);
  void remove_segment(uint64_t segment);

  // The entry that is worth the least and that no other continues, for which `may_go` is true.
  std::optional<Key> least(const std::function<bool(const Entry&)>& may_go) const;
  // Where none of those may go, say because another process is writing a sequence's end: of all for
  // which it is true, that of the highest page. Takes as long as there are entries.
  std::optional<Key> deepest(const std::function<bool(const Entry&)>& may_go) const;
  // As it would be: to compare with the least.
  double worth_of_new(double seconds, uint64_t bytes) const;
  // Entries that go, go by their worth: the clock follows.
  void advance_clock(double worth) { clock_ = std::max(clock_, worth); }

  uint64_t num_records() const { return num_records_; }
  uint64_t num_records(uint64_t segment) const;

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return NameHash()(key.name) * 2 + static_cast<size_t>(key.kind);
    }
  };
  struct Rank {
    double worth;
    uint64_t used_at;
    Key key;
    auto operator<=>(const Rank&) const = default;
  };

  bool is_leaf(const Key& key) const;
  void rank(const Key& key, Entry& entry);
  void unrank(const Key& key, const Entry& entry);
  void count_child(const Key& parent, int change);
  void reckon(Entry& entry) const;
  static Key parent_of(const Key& key, const Entry& entry);

  std::unordered_map<Key, Entry, KeyHash> entries_;
  std::unordered_map<Name, uint64_t, NameHash> children_;  // by the page that they continue
  std::set<Rank> leaves_;
  std::unordered_map<uint64_t, std::vector<Key>> by_segment_;  // a key may be there in vain
  std::unordered_map<uint64_t, uint64_t> count_by_segment_;
  uint64_t num_records_ = 0;
  uint64_t last_use_ = 0;
  double clock_ = 0;
};

}  // namespace wideep::store
