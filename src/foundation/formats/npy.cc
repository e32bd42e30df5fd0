// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace wideep::formats {
namespace {

constexpr size_t kAlignment = 64;
// numpy leaves room in the header for a first size of so many digits, so that an array can grow in
// its file.
constexpr size_t kMaxDigits = 21;

std::string header_of(std::span<const int64_t> shape) {
  std::string header = fmt::format("{{'descr': '<i4', 'fortran_order': False, 'shape': ({}{}), }}",
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  header.append(kMaxDigits - std::to_string(shape.front()).size(), ' ');
  return header;
}

}  // namespace

std::string npy_of(std::span<const int32_t> values, std::span<const int64_t> shape) {
  static_assert(std::endian::native == std::endian::little);
  const int64_t product =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  WIDEEP_CHECK_EQ(static_cast<int64_t>(values.size()), product);
  std::string header = header_of(shape);
  constexpr size_t kBefore = 10;  // bytes before the header
  const size_t used = kBefore + header.size() + 1;
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return bytes;
}

}  // namespace wideep::formats
