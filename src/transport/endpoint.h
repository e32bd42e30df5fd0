// SPDX-License-Identifier: Apache-2.0
//
// One rank's end of a group: it writes into its peers' segments, raises flags there, and waits for
// the flags its peers raise. The same class serves ranks that are processes and ranks that are
// threads.
//
// Every wait ends: with what it waited for, with the group's failure, or at its deadline with an
// error that names rank, peer, layer, iteration and what was awaited. A wait spins briefly and then
// sleeps on a futex, so that many ranks may share a core.
//
// Thread safety: one thread per endpoint.
#pragma once

#include <chrono>
#include <cstdint>
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
};

class Endpoint {
 public:
  // `timeout` bounds every single wait.
  Endpoint(std::shared_ptr<SharedMemory> memory, int rank, std::chrono::milliseconds timeout);

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

  // Returns when `peer`'s flag has reached `value` (it may be further already).
  Status wait(Channel channel, int peer, uint32_t value, const Awaited& awaited);
  Status wait_all(Channel channel, uint32_t value, const Awaited& awaited);

  // Gives every rank the words of all ranks: collective, once per iteration. words is [num_ranks].
  Status agree(const AgreedWords& mine, const Awaited& awaited, std::vector<AgreedWords>* words);
  // The same for those who have no words to tell.
  Status meet(const Awaited& awaited);

  // The processor time that this rank has spent in waits.
  int64_t waited_cpu_ns() const { return waited_cpu_ns_; }

 private:
  Status sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited);
  Status timed_out(int peer, const Awaited& awaited) const;

  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::chrono::nanoseconds spin_{20'000};  // before a wait sleeps; 0 when ranks outnumber cores
  uint32_t agreements_ = 0;
  int64_t waited_cpu_ns_ = 0;
  std::vector<AgreedWords> met_;
};

}  // namespace wideep::transport
