// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_bytes.h"

#include <cstring>

#include "base/check.h"

namespace wideep::base {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

AlignedBytes::AlignedBytes(size_t num_bytes) : size_(num_bytes) {
  const size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  WIDEEP_CHECK(rounded == 0 || data_ != nullptr);
  std::memset(data_.get(), 0, rounded);
}

}  // namespace wideep::base
