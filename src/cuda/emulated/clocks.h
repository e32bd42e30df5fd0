// SPDX-License-Identifier: Apache-2.0
//
// Vector clocks: what each thread knows of the progress of all others. An access happens before
// another if the second thread's clock has reached the time of the first. Two accesses of one word,
// one of them a write, of which neither happens before the other, are a race, in whatever order
// this run had them.
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace wideep::cuda {

// The moment of an access: the thread, and its own time.
struct Moment {
  uint32_t thread = 0;
  uint32_t time = 0;  // 0: never
};

class VectorClock {
 public:
  VectorClock() = default;
  explicit VectorClock(size_t num_threads) : times_(num_threads, 0) {}

  bool empty() const { return times_.empty(); }
  uint32_t of(uint32_t thread) const { return times_[thread]; }
  bool knows(Moment moment) const { return times_[moment.thread] >= moment.time; }
  void tick(uint32_t thread) { ++times_[thread]; }
  void forget_all_but(uint32_t thread) {
    const uint32_t kept = times_[thread];
    std::fill(times_.begin(), times_.end(), 0);
    times_[thread] = kept;
  }
  void join(const VectorClock& other) {
    if (times_.empty()) times_.resize(other.times_.size());
    uint32_t* mine = times_.data();
    const uint32_t* theirs = other.times_.data();
    for (size_t i = 0; i < times_.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
  }

 private:
  std::vector<uint32_t> times_;
};

}  // namespace wideep::cuda
