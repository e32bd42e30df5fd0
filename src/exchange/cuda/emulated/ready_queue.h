// SPDX-License-Identifier: Apache-2.0
//
// The threads that can continue, in the order in which they became ready, until one is taken from
// between them.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace wideep::cuda {

template <typename T>
class ReadyQueue {
 public:
  bool empty() const { return size() == 0; }
  size_t size() const { return entries_.size() - first_; }
  const T& operator[](size_t i) const { return entries_[first_ + i]; }
  void push_back(T entry) { entries_.push_back(entry); }
  void clear() {
    entries_.clear();
    first_ = 0;
  }
  // The oldest leaves a gap, which is closed when it is as large as what is left.
  T take_oldest() {
    const T taken = entries_[first_++];
    if (2 * first_ >= entries_.size()) {
      entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
    return taken;
  }
  // The newest takes its place.
  T take(size_t i) {
    const T taken = (*this)[i];
    entries_[first_ + i] = entries_.back();
    entries_.pop_back();
    return taken;
  }

 private:
  std::vector<T> entries_;
  size_t first_ = 0;
};

}  // namespace wideep::cuda
