// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "kernels/tables.h"

#if defined(__clang__)
#pragma clang attribute push(                                                     \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#endif

namespace wideep::kernels {
namespace {
#include "kernels/x86/simd_avx512.h"
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

const Kernels* avx512_kernels() {
  static constexpr Kernels kTable = {
      .isa = "avx512",
      .description = "AVX-512 with BF16",
      .supported =
          [] {
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512bf16");
          },
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
