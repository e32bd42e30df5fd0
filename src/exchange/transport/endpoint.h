// SPDX-License-Identifier: Apache-2.0
//
// One rank's access to its group: it writes into the segments of its peers, raises flags for them,
// and waits for their flags. Ranks may be processes or threads.
//
// Every wait is bounded. It returns ok when the flag has its value, the group's error when any rank
// has failed, or at its deadline an error that names rank, peer, layer, iteration and the awaited
// thing. A wait first spins; where ranks outnumber cores it then yields its core; last it sleeps on
// a futex. So many ranks can share a core.
//
// An endpoint may serve a group within the world, such as a pipeline stage. Its methods then take
// ranks of the group; its error messages name ranks of the world. Each kind of group has its own
// flags, so a rank may use several endpoints at the same time.
//
// Ranks may be on several nodes (set_bridge). Only ranks of one node share memory; other nodes see
// what is sent with raise, raise_all, set_word, forward_to, forward_to_all, agree, or the bridge.
// For a rank on another node, segment() returns this node's image of its segment. That rank's proxy
// on this node (bridge.h) writes into the image.
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

// The awaited thing, for the error message of a wait that fails.
struct Awaited {
  const char* what = "";
  int layer = -1;          // −1: not inside a layer
  int64_t iteration = -1;  // −1: before the first

  Awaited named(const char* name) const { return {name, layer, iteration}; }
};

class Bridge;

// Bytes that a rank has written into a segment: `rows` rows of `width` bytes, `stride` bytes from
// the start of one row to the next.
struct Written {
  const void* first = nullptr;
  size_t width = 0;
  size_t stride = 0;
  size_t rows = 1;
};

class Endpoint {
 public:
  // The endpoint of the world. `timeout` bounds each wait.
  Endpoint(std::shared_ptr<SharedMemory> memory, int rank, std::chrono::milliseconds timeout);
  // The endpoint of a group within the world. ranks: the group's members as ranks of the world, in
  // the order of the group; they include this rank. `world` may itself be the endpoint of a group;
  // it outlives this one. REQUIRES: all ranks create the same groups of a kind, and each rank is in
  // exactly one of them.
  Endpoint(Endpoint& world, Group kind, std::vector<int> ranks);
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Connects the world's endpoint with ranks on other nodes. The bridge outlives the endpoint.
  void set_bridge(Bridge* bridge);
  Bridge* bridge() const { return world_ != nullptr ? world_->bridge_ : bridge_; }
  // Whether `rank` is on this rank's node, and so shares its memory.
  bool is_on_this_node(int rank) const;
  // The number of the group's ranks on this node, and this rank's index among them.
  int ranks_on_node() const;
  int index_on_node() const;

  // Shared by all endpoints of this rank.
  std::chrono::milliseconds timeout() const { return world_ ? world_->timeout() : timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) {
    (world_ != nullptr ? world_->timeout_ : timeout_) = timeout;
  }

  int rank() const { return rank_; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  // Converts a rank of the group to a rank of the world.
  int world_rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  int world_rank() const { return world_rank(rank_); }
  SharedMemory& memory() const { return *memory_; }
  std::byte* segment(int rank) const { return memory_->segment(world_rank(rank)); }
  // Fails the group with an error of this rank itself, which the others would wait for.
  void fail_group(const Status& status) const { memory_->fail(status, world_rank()); }

  // Raises this rank's flag of `channel` to `value` for the whole group. A rank that sees the value
  // sees everything this rank wrote before. REQUIRES: `value` is greater than the flag's value.
  void raise_all(Channel channel, uint32_t value);
  // The two halves of raise_all, to be called in this order: for the ranks of this node, then for
  // the ranks of other nodes.
  void raise_on_this_node(Channel channel, uint32_t value);
  void raise_on_other_nodes(Channel channel, uint32_t value);
  // As raise_all where only `peer` waits for the flag: at most one message is sent.
  void raise(Channel channel, int peer, uint32_t value);
  // The value that this rank's flag of `channel` was last raised to.
  uint32_t raised(Channel channel) const { return raised_[static_cast<size_t>(channel)]; }

  // A word that accompanies this rank's flag, for one reader. The sender sets it before it raises
  // the flag to `value`; the reader reads it after its wait for `value`. REQUIRES: `peer` is
  // another rank, and has read the word of value − 2, which this one overwrites.
  void set_word(Channel channel, int peer, uint32_t value, uint32_t word) {
    memory_->word(kind_, channel, world_rank(), world_rank(peer), value) = word;
  }
  uint32_t word_from(Channel channel, int peer, uint32_t value) const {
    return memory_->word(kind_, channel, world_rank(peer), world_rank(), value);
  }

  // Call it after a write into the segment of `peer`, before the flag is raised. If `peer` is on
  // another node, sends the bytes to that node, into the same place of the peer's segment.
  void forward_to(int peer, std::span<const std::byte> written);

  // Call it after a write into the segment of `owner` that all ranks of the group will read in
  // place, before the flag is raised. Sends the bytes to the other nodes' copies of that segment.
  void forward_to_all(int owner, std::span<const Written> written);

  // Whether the flags of all ranks, or of the ranks of this node, have reached `value`.
  bool all_reached(Channel channel, uint32_t value) const;
  bool reached_on_this_node(Channel channel, uint32_t value) const;

  // Waits until `peer`'s flag, or the flags of all ranks, have reached `value`.
  // Errors: the group's failure; deadline_exceeded, which also fails the group.
  Status wait(Channel channel, int peer, uint32_t value, const Awaited& awaited);
  Status wait_all(Channel channel, uint32_t value, const Awaited& awaited);
  // As wait_all; calls `arrived` with peers whose flags have reached `value` while it still waits
  // for the rest. Each peer, this rank included, is passed exactly once.
  Status wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                   const std::function<void(std::span<const int> peers)>& arrived);

  // All-gather of a cache line per rank. Collective. words: [num_ranks], in rank order.
  Status agree(const AgreedWords& mine, const Awaited& awaited, std::vector<AgreedWords>* words);
  // Barrier. Collective.
  Status barrier(const Awaited& awaited);

  // Processor time, in ns, that this rank has spent in waits of all its endpoints. Does not include
  // the first microseconds of each wait, which are not measured.
  int64_t waited_cpu_ns() const { return world_ ? world_->waited_cpu_ns_ : waited_cpu_ns_; }

 protected:
  // Called before each raise; if false, the flag is not raised. Tests override it to inject faults.
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
  bool oversubscribed_;  // ranks outnumber cores: the awaited rank may need this core
  int waits_without_yield_ = 0;
  std::array<uint32_t, static_cast<size_t>(Channel::kCount)> raised_ = {};
  int64_t waited_cpu_ns_ = 0;
  std::vector<AgreedWords> barrier_words_;  // unused words of barrier()
  std::vector<int> missing_;                // work space of wait_each: peers still awaited
};

}  // namespace wideep::transport
