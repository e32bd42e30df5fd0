// SPDX-License-Identifier: Apache-2.0
//
// Memory that every rank of a group sees: one segment per rank, all of one size, at the same offset
// in each (symmetric), plus a page that controls the group.
//
// The memory is anonymous (a memfd): nothing appears in /dev/shm, and it is gone with the last
// process that maps it, however that process ends.
//
// Invariants
//  1. A flag's value is written by one rank only (its sender or, for a sender on another node, the
//     sender's proxy here) and only grows, modulo 2³².
//  2. Bytes written before a flag's store are visible to whoever saw that store (release/acquire).
//  3. Once failure.code is not zero the group never runs again; every wait returns an error.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/shared_bytes.h"
#include "wideep/status.h"

namespace wideep::transport {

// Ranks that speak with each other: all, or those of a group within the world. Groups of one kind
// part the world between them.
enum class Group : int {
  kWorld,
  kStage,     // of a pipeline: the same layers
  kPipeline,  // one rank of every stage, in the order of the stages
  kExperts,   // between which dispatch takes tokens (moe_ep)
  kShards,    // parts of the same experts (moe_tp)
  kContext,   // parts of the same sequences (cp)
  kCount
};

// What a flag is about. Every rank has one flag per kind of group and channel, which all others
// read.
enum class Channel : int { kAgree, kPrepare, kDispatch, kCombine, kJoin, kRows, kTokens, kCount };

// On cache lines of its own: neighbours belong to other senders. One for all readers, so that it is
// written once, and comes to a core once for all ranks there. Behind it lie the words that are sent
// with it, one for each reader (SharedMemory::word).
struct alignas(64) Flag {
  static constexpr size_t kBytes = 8;  // behind which the words begin
  std::atomic<uint32_t> value{0};
  std::atomic<uint16_t> sleepers{0};   // readers that sleep on `value`
  std::atomic<uint16_t> processor{0};  // on which it was raised
};
static_assert(offsetof(Flag, processor) + sizeof(Flag::processor) == Flag::kBytes);
static_assert(decltype(Flag::value)::is_always_lock_free);  // processes share it
static_assert(decltype(Flag::sleepers)::is_always_lock_free);

// What a rank sends to all others with its flag of kAgree: a cache line.
using AgreedWords = std::array<uint64_t, 8>;

// The first failure of any rank, for all to see.
struct Failure {
  static constexpr size_t kTextBytes = 512;
  std::atomic<uint32_t> code{0};     // 0: none; else 1 + StatusCode, set after the text
  std::atomic<uint32_t> claimed{0};  // who writes the text: the first to exchange 0 for 1
  char text[kTextBytes] = {};
};

struct ControlPage {
  Failure failure;
  std::atomic<uint32_t> stop_requested{0};  // finish the iteration, then end
};

class SharedMemory {
 public:
  // Maps num_ranks segments of at least segment_bytes each, zero-filled. Made before the ranks are
  // forked (or started as threads): they inherit it at the same address.
  // Errors (failed): the kernel refuses the memory.
  static Result<std::shared_ptr<SharedMemory>> create(
      int num_ranks, size_t segment_bytes,
      const base::MakeSharedBytes& make = base::SharedBytes::create);

  int num_ranks() const { return num_ranks_; }
  size_t segment_bytes() const { return segment_bytes_; }

  std::byte* segment(int rank) const;  // page aligned
  // Ranks of the world, whatever the kind of group.
  Flag& flag(Group kind, Channel channel, int from) const {
    return *reinterpret_cast<Flag*>(flag_at(kind, channel, from));
  }
  // The word that goes to one reader with a value of the flag: written before the flag, read after
  // it. Two places are used in turn, so that a word may be written while the one before is still to
  // be read. REQUIRES: `to` is not `from`; without that word all words of a world of 8 ranks fit on
  // the flag's own cache line.
  uint32_t& word(Group kind, Channel channel, int from, int to, uint32_t value) const {
    WIDEEP_CHECK(to != from);
    auto* words = reinterpret_cast<uint32_t*>(flag_at(kind, channel, from) + Flag::kBytes);
    const auto others = static_cast<size_t>(num_ranks_ - 1);
    return words[(value & 1) * others + static_cast<size_t>(to < from ? to : to - 1)];
  }
  // The words that a rank's flag of kAgree carries (see Endpoint::agree).
  AgreedWords& agreed_words(Group kind, int rank, uint32_t parity) const;
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(bytes_.data()); }

  // Records the group's first failure; later ones are dropped. Any rank or the parent may call it.
  void fail(const Status& status) const;
  // Ok while nobody has failed.
  Status failure() const;

 private:
  SharedMemory() = default;
  std::byte* flag_at(Group kind, Channel channel, int from) const {
    const auto kinds_before = static_cast<size_t>(kind), before = static_cast<size_t>(channel);
    const size_t plane = kinds_before * static_cast<size_t>(Channel::kCount) + before;
    const size_t index = plane * static_cast<size_t>(num_ranks_) + static_cast<size_t>(from);
    return bytes_.data() + flags_offset_ + index * flag_stride_;
  }

  base::SharedBytes bytes_;
  size_t words_offset_ = 0;
  size_t flags_offset_ = 0;
  size_t flag_stride_ = 0;
  size_t segments_offset_ = 0;
  size_t segment_bytes_ = 0;
  int num_ranks_ = 0;
};

}  // namespace wideep::transport
