// SPDX-License-Identifier: Apache-2.0
#include "ep/result_sum.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/dtype.h"

// A fused multiply-add is one rounding, as an instruction or in software: the bits are the same.
#if defined(__x86_64__)
#define WIDEEP_WITH_FMA __attribute__((target("avx2,fma")))
#endif

namespace wideep::ep {
namespace {

// So many sums stay in the nearest cache while the rows are added.
constexpr size_t kPart = 512;

[[gnu::always_inline]] inline void sum_part(const RowsToSum& sum, size_t begin, size_t count) {
  std::array<float, kPart> sums{};
  for (size_t k = 0; k < sum.rows.size(); ++k) {
    const float weight = sum.weights[k];
    if (sum.type == ResultType::kF32) {
      const auto* row = reinterpret_cast<const float*>(sum.rows[k]) + begin;
      for (size_t i = 0; i < count; ++i) sums[i] = std::fma(weight, row[i], sums[i]);
    } else {
      const auto* row = reinterpret_cast<const Bf16*>(sum.rows[k]) + begin;
      for (size_t i = 0; i < count; ++i) {
        sums[i] = std::fma(weight, static_cast<float>(row[i]), sums[i]);
      }
    }
  }
  if (sum.shared != nullptr) {
    for (size_t i = 0; i < count; ++i) sums[i] += sum.shared[begin + i];
  }
  for (size_t i = 0; i < count; ++i) sum.out[begin + i] = Bf16::round(sums[i]);
}

void sum_all(const RowsToSum& sum) {
  for (size_t begin = 0; begin < sum.hidden; begin += kPart) {
    sum_part(sum, begin, std::min(kPart, sum.hidden - begin));
  }
}

#if defined(WIDEEP_WITH_FMA)
WIDEEP_WITH_FMA void sum_all_with_fma(const RowsToSum& sum) {
  for (size_t begin = 0; begin < sum.hidden; begin += kPart) {
    sum_part(sum, begin, std::min(kPart, sum.hidden - begin));
  }
}
#endif

}  // namespace

void sum_rows(const RowsToSum& sum) {
#if defined(WIDEEP_WITH_FMA)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return sum_all_with_fma(sum);
#endif
  sum_all(sum);
}

}  // namespace wideep::ep
