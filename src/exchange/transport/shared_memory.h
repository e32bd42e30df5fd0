// SPDX-License-Identifier: Apache-2.0
//
// Symmetric memory, shared by all ranks of a node: one segment of equal size and layout per rank of
// the world, the flags, and a control page. It is anonymous (a memfd): nothing appears in /dev/shm,
// and the kernel frees it when the last process that maps it ends, for whatever reason.
//
//   control page | agreed words | flags with their words | segments
//
// Invariants
//  1. A flag is written by one rank only: its sender or, if the sender is on another node, the
//     sender's proxy on this node (bridge.h). Its value only grows, modulo 2³².
//  2. A rank that reads a flag's value (acquire) sees all bytes written before the flag was raised
//     to it (release).
//  3. While failure.code is not zero, every wait returns the error. The group never runs again,
//     unless its keeper clears the memory for other members (clear()).
//
// Thread safety: any thread of any process that maps the memory. Segments and words are plain
// memory: flags order the accesses to them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/shared_bytes.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::transport {

// The kind of a communication group: the world, or groups within it. Every rank is in exactly one
// group of each kind.
enum class Group : int {
  kWorld,
  kStage,     // of a pipeline: the same layers
  kPipeline,  // one rank of every stage, in the order of the stages
  kExperts,   // between which dispatch takes tokens (moe_ep)
  kShards,    // parts of the same experts (moe_tp)
  kContext,   // parts of the same sequences (cp)
  kCount
};

// What a flag is used for. Every rank has one flag per kind of group and channel; all other ranks
// of the group read it.
enum class Channel : int { kAgree, kPrepare, kDispatch, kCombine, kJoin, kRows, kTokens, kCount };

// A flag starts a cache line of its own, because flags beside it belong to other senders. All
// readers share it: the sender writes one line, and a core loads it once for all of its ranks. The
// words that accompany it, one per reader, follow it in memory (SharedMemory::word).
struct alignas(64) Flag {
  static constexpr size_t kBytes = 8;  // offset of the words
  std::atomic<uint32_t> value{0};
  std::atomic<uint16_t> sleepers{0};   // readers that sleep on `value`
  std::atomic<uint16_t> processor{0};  // where the sender ran when it last raised the flag
};
static_assert(offsetof(Flag, processor) + sizeof(Flag::processor) == Flag::kBytes);
static_assert(decltype(Flag::value)::is_always_lock_free);  // processes share it
static_assert(decltype(Flag::sleepers)::is_always_lock_free);

// The words that a rank passes to all others in Endpoint::agree: one cache line.
using AgreedWords = std::array<uint64_t, 8>;

// The group's first error.
struct Failure {
  static constexpr size_t kTextBytes = 512;
  std::atomic<uint32_t> code{0};     // 0: none; else 1 + StatusCode, set after the text
  std::atomic<uint32_t> claimed{0};  // the first rank to exchange 0 for 1 writes the text
  std::atomic<int32_t> rank{-1};     // that cannot go on; −1: none, or it is not known
  char text[kTextBytes] = {};
};

// Of the world, if it may lose ranks: messages about members have room for so many.
inline constexpr int kMaxRanks = 1024;
// Counted over all processes of a service, each on its own (group/fault_drill.h).
using StepCounters = std::array<std::atomic<uint32_t>, 16>;

struct ControlPage {
  Failure failure;
  std::atomic<uint32_t> stop_requested{0};  // 1: ranks end after the current iteration
  // 1: ranks leave their group after the current iteration, for other members (group/members.h).
  std::atomic<uint32_t> change_requested{0};
  std::atomic<uint32_t> epoch{0};         // the last one that was formed
  std::atomic<uint32_t> broken_epoch{0};  // the last one that has lost a member
  // Of iterations, as the front counts them: its successor goes on (run/iteration_summary.h).
  std::atomic<int64_t> next_iteration{0};
  StepCounters drill_steps = {};
  // [ranks of the world] where those of the epoch listen for ranks of other nodes (tcp_link.h).
  std::array<PeerAddress, kMaxRanks> addresses = {};
};

class SharedMemory {
 public:
  // Maps num_ranks segments of at least segment_bytes each, zero-filled. Forked ranks and threads
  // inherit the mapping, so create it before they start.
  // Errors (failed): the kernel refuses the memory.
  static Result<std::shared_ptr<SharedMemory>> create(
      int num_ranks, size_t segment_bytes,
      const base::MakeSharedBytes& make = base::SharedBytes::create);

  int num_ranks() const { return num_ranks_; }
  size_t segment_bytes() const { return segment_bytes_; }

  std::byte* segment(int rank) const;  // page aligned
  // from: the sender, as a rank of the world, for every kind of group.
  Flag& flag(Group kind, Channel channel, int from) const {
    return *reinterpret_cast<Flag*>(flag_at(kind, channel, from));
  }
  // The word that accompanies `value` of the flag, for the reader `to`. The sender writes it before
  // it raises the flag, the reader reads it after. Two places are used in turn, so that the next
  // word may be written before this one is read. REQUIRES: to ≠ from. (A rank has no word for
  // itself: so in a world of 8 ranks flag and words fit on one cache line.)
  uint32_t& word(Group kind, Channel channel, int from, int to, uint32_t value) const {
    WIDEEP_CHECK(to != from);
    auto* words = reinterpret_cast<uint32_t*>(flag_at(kind, channel, from) + Flag::kBytes);
    const auto others = static_cast<size_t>(num_ranks_ - 1);
    return words[(value & 1) * others + static_cast<size_t>(to < from ? to : to - 1)];
  }
  // The words of one rank for an all-gather with this parity (Endpoint::agree).
  AgreedWords& agreed_words(Group kind, int rank, uint32_t parity) const;
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(bytes_.data()); }

  // Fails the group. Only the first error is kept. Any rank or the parent may call it. rank: of the
  // world, that has the error itself, as when it is out of memory; −1: it has seen it only.
  void fail(const Status& status, int rank = -1) const;
  // The same for the keeper of the ranks, which alone calls it: also where a rank has died before
  // it could say the error that it had begun to say.
  void fail_for_all(const Status& status) const;
  // Ok while no rank has failed; else the group's first error.
  Status failure() const;
  // Of failure(); −1: none.
  int failed_rank() const { return control().failure.rank.load(); }

  // Everything but the segments as it was at first, for other members. REQUIRES: no rank uses it.
  void clear() const;

 private:
  SharedMemory() = default;
  void publish(const Status& status, int rank) const;
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
