// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_bytes.h"

#include <sys/mman.h>

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/trace.h"

namespace wideep::base {
namespace {

constexpr size_t kAlignment = 64;

// Smaller blocks would waste too much of their last page. The threshold may lie below a huge page
// (2 MiB): the kernel merges neighbouring anonymous mappings, so that a huge page can span several.
constexpr size_t kMapBytes = size_t{256} << 10;

// std::bad_alloc whose message gives the size. The text is formatted into the object itself,
// because no memory can be allocated for it now.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t num_bytes) {
    constexpr auto kText = "out of memory: {:.1f} MB more cannot be allocated";
    fmt::format_to_n(text_, sizeof(text_) - 1, kText, static_cast<double>(num_bytes) * 1e-6);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[96] = {};
};

std::byte* map_zeroed(size_t num_bytes) {
  void* mapped =
      ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw OutOfMemory(num_bytes);
  // The result is ignored: without huge pages the memory is slower, not wrong.
  ::madvise(mapped, num_bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(mapped);
}

std::byte* allocate_zeroed(size_t num_bytes) {
  void* allocated = std::aligned_alloc(kAlignment, num_bytes);
  if (num_bytes > 0 && allocated == nullptr) throw OutOfMemory(num_bytes);
  return static_cast<std::byte*>(std::memset(allocated, 0, num_bytes));
}

}  // namespace

AlignedBytes::AlignedBytes(size_t num_bytes) : size_(num_bytes) {
  const int64_t start_ns = allocation_start();
  // std::aligned_alloc requires a multiple of the alignment.
  const size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_ = rounded >= kMapBytes
              ? std::unique_ptr<std::byte, Release>(map_zeroed(rounded), Release{rounded})
              : std::unique_ptr<std::byte, Release>(allocate_zeroed(rounded), Release{0});
  record_allocation(start_ns, rounded);
}

void AlignedBytes::Release::operator()(std::byte* p) const {
  if (mapped_bytes > 0) {
    ::munmap(p, mapped_bytes);
  } else {
    std::free(p);
  }
}

}  // namespace wideep::base
