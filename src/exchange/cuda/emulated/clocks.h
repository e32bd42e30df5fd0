// SPDX-License-Identifier: Apache-2.0
//
// Vector clocks: what each thread knows of the progress of all others. An access happens before
// another if the second thread's clock has reached the time of the first. Two accesses of one word,
// one of them a write, of which neither happens before the other, are a race, in whatever order
// this run had them.
//
// Threads of a block know nearly always the same: what a barrier has told all of them. So they
// share it, and each has only its own time beside it.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace wideep::cuda {

// The moment of an access: the thread, and its own time.
struct Moment {
  uint32_t thread = 0;
  uint32_t time = 0;  // 0: never
};

// A time for each thread; copies share their memory until one of them is written.
class SharedTimes {
 public:
  SharedTimes() = default;
  explicit SharedTimes(size_t num_threads) : shared_(new Shared{1, std::vector<uint32_t>()}) {
    shared_->times.resize(num_threads);
  }
  SharedTimes(const SharedTimes& other) : shared_(other.shared_) {
    if (shared_ != nullptr) ++shared_->num_owners;
  }
  SharedTimes(SharedTimes&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  SharedTimes& operator=(SharedTimes other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~SharedTimes() {
    if (shared_ != nullptr && --shared_->num_owners == 0) delete shared_;
  }

  bool empty() const { return shared_ == nullptr; }
  uint32_t of(uint32_t thread) const { return shared_->times[thread]; }
  void raise(Moment moment) {
    if (of(moment.thread) < moment.time) own()[moment.thread] = moment.time;
  }
  // The later time of each thread. Shares the other's memory if it knows all that this one does.
  void join(const SharedTimes& other) {
    if (shared_ == other.shared_) return;
    if (empty()) {
      *this = other;
      return;
    }
    const uint32_t* mine = shared_->times.data();
    const uint32_t* theirs = other.shared_->times.data();
    const size_t n = shared_->times.size();
    uint32_t mine_later = 0, theirs_later = 0;
    for (size_t i = 0; i < n; ++i) {
      mine_later |= mine[i] > theirs[i] ? 1u : 0u;
      theirs_later |= mine[i] < theirs[i] ? 1u : 0u;
    }
    if (theirs_later == 0) return;
    if (mine_later == 0) {
      *this = other;
      return;
    }
    uint32_t* joined = own();
    for (size_t i = 0; i < n; ++i) joined[i] = std::max(joined[i], theirs[i]);
  }

 private:
  struct Shared {
    size_t num_owners;
    std::vector<uint32_t> times;
  };

  // To write: a copy, if others share it.
  uint32_t* own() {
    if (shared_->num_owners > 1) {
      --shared_->num_owners;
      shared_ = new Shared{1, shared_->times};
    }
    return shared_->times.data();
  }

  Shared* shared_ = nullptr;
};

class VectorClock {
 public:
  VectorClock() = default;
  VectorClock(uint32_t thread, SharedTimes known) : known_(std::move(known)), now_{thread, 0} {}

  Moment now() const { return now_; }
  bool knows(Moment moment) const {
    return moment.thread == now_.thread ? now_.time >= moment.time
                                        : known_.of(moment.thread) >= moment.time;
  }
  void tick() { ++now_.time; }
  // What is known of the others.
  const SharedTimes& known() const { return known_; }
  void set_known(const SharedTimes& known) { known_ = known; }

  void join(const SharedTimes& times) { known_.join(times); }
  void join(const VectorClock& other) {
    known_.join(other.known_);
    if (other.now_.thread == now_.thread) {
      now_.time = std::max(now_.time, other.now_.time);
    } else {
      known_.raise(other.now_);
    }
  }

 private:
  SharedTimes known_;
  Moment now_;
};

}  // namespace wideep::cuda
