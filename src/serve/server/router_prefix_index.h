// SPDX-License-Identifier: Apache-2.0
//
// Which beginnings of prompts each replica was sent lately, by the names of their chunks
// (router_prompt_text.h). What a replica was sent it has computed, and has perhaps kept: a guess,
// but one that needs nothing from it.
//
// Bounded: beyond max_entries the one that was used longest ago is replaced. An entry takes 24
// bytes, and 4 to 8 bytes to find it.
//
// Of each prompt the first chunks count as used last, so a replica's chunks of a prompt go from its
// end on: those that are left are always the first n. So match() searches n by halves.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::server {

class PrefixIndex {
 public:
  // REQUIRES: 0 < max_entries < 2³¹.
  PrefixIndex(size_t num_replicas, size_t max_entries);

  // The replica was sent the prompt with these chunks. now: seconds of any steady clock, which is
  // never less than in a call before.
  void add(size_t replica, std::span<const uint64_t> chain, uint32_t now);
  // How many of the first chunks the replica was sent, at most max_age seconds ago.
  size_t match(size_t replica, std::span<const uint64_t> chain, uint32_t now,
               uint32_t max_age) const;
  // The replica has begun anew. What it was sent is found no more, and replaced in its turn.
  void forget(size_t replica) { ++generations_[replica]; }

  size_t size() const { return entries_.size(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t key = 0;
    uint32_t time = 0;
    uint32_t newer = kNone, older = kNone;  // in the order of use
    uint32_t next = kNone;                  // of the same slot
  };

  uint64_t key_of(size_t replica, uint64_t name) const;
  size_t slot_of(uint64_t key) const { return key & (slots_.size() - 1); }
  uint32_t find(uint64_t key) const;
  uint32_t make(uint64_t key);
  void leave_slot(uint32_t entry);
  void leave_order(uint32_t entry);
  void become_newest(uint32_t entry);

  size_t max_entries_;
  std::vector<uint64_t> generations_;  // [replicas]
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // the first entry of each; as many as a power of two
  uint32_t newest_ = kNone, oldest_ = kNone;
};

}  // namespace wideep::server
