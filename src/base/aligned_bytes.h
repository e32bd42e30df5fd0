// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

namespace wideep::base {

// 64-byte aligned memory that starts zeroed.
//
// Large ones are mapped by themselves, in huge pages where the kernel has them for programs that
// ask. Their pages come with the first touch, which costs far more than a later one (0.4 to
// 1.6 GB/s where the memory is fresh): whoever fills one does it on several threads.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t num_bytes);  // throws std::bad_alloc

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Release {
    size_t mapped_bytes;  // 0: on the heap
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Release> data_{nullptr, Release{0}};
  size_t size_ = 0;
};

}  // namespace wideep::base
