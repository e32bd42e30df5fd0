// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

namespace wideep::base {

// Zeroed memory, aligned to 64 bytes.
//
// Blocks of 256 KiB and more get a mapping of their own, in transparent huge pages where the kernel
// allows them. The kernel allocates each page at its first touch, which limits the first fill (to
// 0.4 to 1.6 GB/s on fresh memory): fill large blocks with several threads.
//
// Thread safety: as plain memory.
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
    size_t mapped_bytes;  // 0: allocated on the heap
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Release> data_{nullptr, Release{0}};
  size_t size_ = 0;
};

}  // namespace wideep::base
