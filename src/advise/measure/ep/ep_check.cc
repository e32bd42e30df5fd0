// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_check.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace wideep::measure {
namespace {

constexpr double kHalfStepBf16 = 0x1p-8;  // of 8 significant bits
constexpr double kHalfStepF32 = 0x1p-24;
constexpr double kDecoding = 4 * kHalfStepF32;

}  // namespace

double max_row_error(kernels::RowFormat format) {
  switch (format) {
    case kernels::RowFormat::kF32:
    case kernels::RowFormat::kBf16:
      return 0.0;
    case kernels::RowFormat::kFp8:
      return kHalfStepBf16 / (1.0 - kHalfStepBf16) + kDecoding;
    case kernels::RowFormat::kNvfp4:
      return kDecoding;
  }
  return 0.0;
}

double max_sum_error(kernels::RowFormat format, Dtype sum, int n) {
  const double of_sum = (1.0 + max_row_error(format)) * (1.0 + 2.0 * n * kHalfStepF32);
  return of_sum * (sum == Dtype::kBf16 ? 1.0 + kHalfStepBf16 : 1.0) - 1.0;
}

Status check_row(const ExpectedRow& expected, const std::byte* row,
                 const kernels::Kernels& kernels) {
  std::vector<float> found(static_cast<size_t>(expected.hidden));
  kernels.decode_row(expected.format, row, expected.hidden, Dtype::kF32, found.data());
  const double bound = max_row_error(expected.format) * expected.value;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::abs(found[i] - expected.value) <= bound) continue;
    return failed(fmt::format("element {} of a result in {}: expected {} within {:.2g}, found {}",
                              i, kernels::row_format_name(expected.format), expected.value, bound,
                              found[i]));
  }
  return {};
}

}  // namespace wideep::measure
