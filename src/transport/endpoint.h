// SPDX-License-Identifier: Apache-2.0
//
// One rank's end of a group: it writes into its peers' segments, raises flags there, and waits for
// the flags its peers raise. The same class serves ranks that are processes and ranks that are
// threads.
//
// Every wait ends: with what it waited for, with the group's failure, or at its deadline with an
// error that names rank, peer, layer, iteration and what was awaited. A wait spins briefly, or
// where ranks outnumber cores yields its core for a while; then it sleeps on a futex, so that many
// ranks may share a core.
//
// Thread safety: one thread per endpoint.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
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

class Endpoint {
 public:
  // `timeout` bounds every single wait.
  Endpoint(std::shared_ptr<SharedMemory> memory, int rank, std::chrono::milliseconds timeout);
  virtual ~Endpoint() = default;

  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  int rank() const { return rank_; }
  int num_ranks() const { return memory_->num_ranks(); }
  SharedMemory& memory() const { return *memory_; }
  std::byte* segment(int rank) const { return memory_->segment(rank); }

  // Raises my flag of `channel` at `peer` to `value`: everything I wrote before is visible to
  // whoever sees it. REQUIRES: value is later than every earlier one on this flag.
  void raise(Channel channel, int peer, uint32_t value);
  void raise_all(Channel channel, uint32_t value);
  // The value that my flags of `channel` were last raised to.
  uint32_t raised(Channel channel) const { return raised_[static_cast<size_t>(channel)]; }

  // A word on the flag's own cache line. The sender tells it before it raises the flag to `value`,
  // the reader looks after its wait for that. REQUIRES: the reader has looked at that of value − 2.
  void tell(Channel channel, int peer, uint32_t value, uint32_t word) {
    memory_->flag(channel, rank_, peer).words[value & 1] = word;
  }
  uint32_t told(Channel channel, int peer, uint32_t value) const {
    return memory_->flag(channel, peer, rank_).words[value & 1];
  }

  // Whether a wait for all would end at once.
  bool all_reached(Channel channel, uint32_t value) const;

  // Returns when `peer`'s flag has reached `value` (it may be further already).
  Status wait(Channel channel, int peer, uint32_t value, const Awaited& awaited);
  Status wait_all(Channel channel, uint32_t value, const Awaited& awaited);
  // The same; calls arrived(peer) once for each, as they come, while others are still awaited.
  Status wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                   const std::function<void(int peer)>& arrived);

  // Gives every rank the words of all ranks: collective, once per iteration. words is [num_ranks].
  Status agree(const AgreedWords& mine, const Awaited& awaited, std::vector<AgreedWords>* words);
  // The same for those who have no words to tell.
  Status meet(const Awaited& awaited);

  // The processor time that this rank has spent in waits, but for the first microseconds of each.
  int64_t waited_cpu_ns() const { return waited_cpu_ns_; }

 protected:
  // Asked before flags are raised; false: they are not. For ranks that fail in tests.
  virtual bool may_raise() { return true; }

 private:
  void store_flag(Channel channel, int peer, uint32_t value);
  void wake(Channel channel, int peer);
  Status wait_long(Flag& flag, int peer, uint32_t value, const Awaited& awaited);
  bool yield_until(const Flag& flag, uint32_t value, int yields);
  Status sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited);
  Status timed_out(int peer, const Awaited& awaited) const;

  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  std::chrono::milliseconds timeout_;
  bool crowded_;  // ranks outnumber cores: whom we await may need ours
  int waits_without_yield_ = 0;
  std::array<uint32_t, static_cast<size_t>(Channel::kCount)> raised_ = {};
  int64_t waited_cpu_ns_ = 0;
  std::vector<AgreedWords> met_;
  std::vector<int> missing_;  // of wait_each
};

}  // namespace wideep::transport
