// SPDX-License-Identifier: Apache-2.0
#include "weights/finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "weights/checkpoint.h"

namespace wideep::weights {
namespace {

using tensor_files::TensorEntry;

// Whether the bits of any element that `mask` selects are all set: the exponent of a float that is
// not finite, the whole code of a NaN in F8_E4M3. No early exit, so that the compiler vectorises
// the loop. `bytes` may be unaligned.
template <typename Bits>
bool any_has_all(const std::byte* bytes, int64_t count, Bits mask) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    found |= static_cast<Bits>(bits & mask) == mask;
  }
  return found;
}

bool any_not_finite(Dtype dtype, const std::byte* bytes, int64_t count) {
  switch (dtype) {
    case Dtype::kF32:
      return any_has_all<uint32_t>(bytes, count, 0x7f800000);
    case Dtype::kBf16:
      return any_has_all<uint16_t>(bytes, count, 0x7f80);
    case Dtype::kF16:
      return any_has_all<uint16_t>(bytes, count, 0x7c00);
    case Dtype::kF8E4M3:  // has no infinity
      return any_has_all<uint8_t>(bytes, count, 0x7f);
    default:
      return false;
  }
}

float value_at(const TensorEntry& entry, int64_t index) {
  if (entry.dtype == Dtype::kF8E4M3) return std::numeric_limits<float>::quiet_NaN();
  float value = 0.0f;
  to_float32(entry, index, 1, &value);
  return value;
}

}  // namespace

Status not_finite(const std::string& where, float value, int64_t index, int64_t columns) {
  const int64_t width = std::max<int64_t>(columns, 1);
  return invalid_input(fmt::format(
      "{}: expected finite weights, found {} in row {}, column {}; the file is damaged, or the "
      "model diverged in training: take another copy",
      where, std::isnan(value) ? "NaN" : fmt::format("{}", value), index / width, index % width));
}

Status check_finite(const TensorEntry& entry, int64_t first, int64_t count,
                    const std::string& where, int64_t before) {
  const size_t element_bytes = dtype_bytes(entry.dtype);
  const auto bytes_at = [&](int64_t index) {
    return entry.bytes.data() + static_cast<size_t>(index) * element_bytes;
  };
  constexpr int64_t kBlock = 4096;
  for (int64_t at = first; at < first + count; at += kBlock) {
    const int64_t block = std::min(kBlock, first + count - at);
    if (!any_not_finite(entry.dtype, bytes_at(at), block)) continue;
    int64_t bad = at;
    while (!any_not_finite(entry.dtype, bytes_at(bad), 1)) ++bad;
    return not_finite(where, value_at(entry, bad), before + bad,
                      entry.shape.empty() ? 1 : entry.shape.back());
  }
  return {};
}

}  // namespace wideep::weights
