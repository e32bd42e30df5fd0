// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "kernels/tables.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace wideep::kernels {
namespace {
#include "kernels/x86/simd_avx2.h"
//
#include "kernels/x86/body.h"
}  // namespace
}  // namespace wideep::kernels

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace wideep::kernels {

const Kernels* avx2_kernels() {
  static constexpr Kernels kTable = {
      .isa = "avx2",
      .description = "AVX2 with FMA",
      .supported = [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
      .matmul = matmul,
      .attention = attention,
      .rms_norm = rms_norm,
      .silu_mul = silu_mul,
      .add_scaled = add_scaled,
      .to_bf16 = to_bf16,
  };
  return &kTable;
}

}  // namespace wideep::kernels
#endif
