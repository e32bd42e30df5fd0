// SPDX-License-Identifier: Apache-2.0
//
// One rank's end of a group: it writes into its peers' segments, raises flags that these read, and
// waits for theirs. The same class serves ranks that are processes and ranks that are threads.
//
// Every wait ends: with what it waited for, with the group's failure, or at its deadline with an
// error that names rank, peer, layer, iteration and what was awaited. A wait spins briefly,
// where ranks outnumber cores yields its core for a while, and then sleeps on a futex, so that many
// ranks may share a core.
//
// An endpoint may also speak for a group within the world, a stage of a pipeline for example: ranks
// then count within the group, but errors name ranks of the world. Each kind of group has flags of
// its own, so that a rank may use its endpoints side by side.
//
// Ranks may be on several nodes (set_bridge). Ranks of the same node then share memory, and what is
// to be seen on other nodes goes through raise, set_word, carry, share and agree, or over the
// bridge. segment() of a rank of another node is this node's image of it, into which the rank's
// proxy here writes.
//
// Thread safety: one thread per rank, for all of its endpoints.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/shared_memory.h"
#include "wideep/status.h"

namespace wideep::transport {

// What a wait is for, to be named when it fails.
struct Awaited {
  const char* what = "";
  int layer = -1;          // −1: not inside a layer
  int64_t iteration = -1;  // −1: before the first

  Awaited named(const char* name) const { return {name, layer, iteration}; }
};

class Bridge;

// Bytes that a rank has written into a segment: `rows` pieces of `width` bytes, `stride` apart.
struct Written {
  const void* first = nullptr;
  size_t width = 0;
  size_t stride = 0;
  size_t rows = 1;
};

class Endpoint {
 public:
  // `timeout` bounds every single wait.
  Endpoint(std::shared_ptr<SharedMemory> memory, int rank, std::chrono::milliseconds timeout);
  // This rank's end of a group within the world: `ranks` of the world in the order of the group,
  // this rank among them. `world`, which may itself speak for a group, outlives it. REQUIRES: all
  // ranks make the same groups of a kind, and each is in one of these.
  Endpoint(Endpoint& world, Group kind, std::vector<int> ranks);
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // The world's: its ranks on other nodes are reached over the bridge, which outlives it.
  void set_bridge(Bridge* bridge);
  Bridge* bridge() const { return world_ != nullptr ? world_->bridge_ : bridge_; }
  // Whether the rank shares this one's memory.
  bool is_near(int rank) const;
  // Of the group's ranks on this node: how many, and which of them this one is.
  int ranks_on_node() const;
  int place_on_node() const;

  // Of all endpoints of this rank.
  std::chrono::milliseconds timeout() const { return world_ ? world_->timeout() : timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) {
    (world_ != nullptr ? world_->timeout_ : timeout_) = timeout;
  }

  int rank() const { return rank_; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  // A rank of the group as the world counts it.
  int world_rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  int world_rank() const { return world_rank(rank_); }
  SharedMemory& memory() const { return *memory_; }
  std::byte* segment(int rank) const { return memory_->segment(world_rank(rank)); }

  // Raises my flag of `channel` to `value`: everything I wrote before is visible to whoever sees
  // it. REQUIRES: value is later than every earlier one on this flag.
  void raise_all(Channel channel, uint32_t value);
  // Its two halves, the first before the second: at the ranks of this node, at those of others.
  void raise_near(Channel channel, uint32_t value);
  void raise_far(Channel channel, uint32_t value);
  // The same where only `peer` waits for it: only its node learns of it.
  void raise(Channel channel, int peer, uint32_t value);
  // The value that my flag of `channel` was last raised to.
  uint32_t raised(Channel channel) const { return raised_[static_cast<size_t>(channel)]; }

  // A word for one reader beside my flag. The sender sets it before it raises the flag to `value`,
  // the reader reads it after its wait for that value. REQUIRES: `peer` is another rank; it has
  // read the word of value − 2, whose place this one takes.
  void set_word(Channel channel, int peer, uint32_t value, uint32_t word) {
    memory_->word(kind_, channel, world_rank(), world_rank(peer), value) = word;
  }
  uint32_t word_from(Channel channel, int peer, uint32_t value) const {
    return memory_->word(kind_, channel, world_rank(peer), world_rank(), value);
  }

  // What I have written into the segment of a peer: if that is only this node's image, it goes to
  // the peer's node now.
  void carry(int peer, std::span<const std::byte> written);

  // What I have written into the segment of `owner` for all ranks of the group to read in place: it
  // goes to their images of it, and is there when a flag that is raised later is.
  void share(int owner, std::span<const Written> written);

  // Whether a wait for all, or for those of this node, would end at once.
  bool all_reached(Channel channel, uint32_t value) const;
  bool near_reached(Channel channel, uint32_t value) const;

  // Returns when `peer`'s flag has reached `value` (it may be further already).
  Status wait(Channel channel, int peer, uint32_t value, const Awaited& awaited);
  Status wait_all(Channel channel, uint32_t value, const Awaited& awaited);
  // The same; calls arrived with those that have come, each once, while others are still awaited.
  Status wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                   const std::function<void(std::span<const int> peers)>& arrived);

  // Gives every rank the words of all ranks: collective, once per iteration. words is [num_ranks].
  Status agree(const AgreedWords& mine, const Awaited& awaited, std::vector<AgreedWords>* words);
  // The same for ranks that have no words to exchange.
  Status meet(const Awaited& awaited);

  // The processor time that this rank has spent in waits, of any of its endpoints, but for the
  // first microseconds of each.
  int64_t waited_cpu_ns() const { return world_ ? world_->waited_cpu_ns_ : waited_cpu_ns_; }

 protected:
  // Asked before flags are raised; false: they are not. For ranks that fail in tests.
  virtual bool may_raise() { return world_ == nullptr || world_->may_raise(); }

 private:
  Flag& flag_of(Channel channel, int rank) const {
    return memory_->flag(kind_, channel, world_rank(rank));
  }
  int processor() const;
  Status wait_long(Flag& flag, int peer, uint32_t value, const Awaited& awaited);
  bool yield_until(const Flag& flag, uint32_t value, int yields);
  bool relay_until(const Flag& flag, uint32_t value, int looks);
  Status sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited);
  Status timed_out(int peer, const Awaited& awaited) const;
  std::string name_of(int rank) const;

  Endpoint* world_ = nullptr;  // null: this is the world's
  Bridge* bridge_ = nullptr;   // null: all ranks share memory
  Group kind_ = Group::kWorld;
  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  std::vector<int> ranks_;  // of the world, in the order of the group
  std::chrono::milliseconds timeout_;
  bool crowded_;  // ranks outnumber cores: whom we await may need ours
  int waits_without_yield_ = 0;
  std::array<uint32_t, static_cast<size_t>(Channel::kCount)> raised_ = {};
  int64_t waited_cpu_ns_ = 0;
  std::vector<AgreedWords> met_;
  std::vector<int> missing_;  // of wait_each
};

}  // namespace wideep::transport
