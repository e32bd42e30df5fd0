// SPDX-License-Identifier: Apache-2.0
//
// The instruction set is switched on by pragmas, for these functions only, and `supported` is asked
// before one of them is called. Twelve independent sums hide the latency of a multiply-add, so that
// its throughput is measured. Copies write past the caches: other stores would first read the lines
// that they overwrite, and the limit would be too low.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/limits/loops.h"

#if defined(__clang__)
#pragma clang attribute push(                                                       \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,avx512vnni,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16,avx512vnni,fma")
#endif

namespace wideep::measure::limits {
namespace {

constexpr int kLoads = 16;  // cache lines per turn

uint64_t read_avx512(const std::byte* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t at = 0; at < bytes; at += size_t{64} * kLoads) {
    for (int i = 0; i < kLoads; ++i) {
      sums[i % 4] = _mm512_xor_si512(sums[i % 4], _mm512_load_si512(data + at + 64 * i));
    }
  }
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]))));
}

// Non-temporal stores bypass the caches: normal stores would first read the lines that they
// overwrite.
void copy_avx512(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 256) {
    for (int i = 0; i < 4; ++i) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64 * i),
                          _mm512_load_si512(from + at + 64 * i));
    }
  }
  _mm_sfence();
}

// Chains in flight: two per cycle with a latency of at most 5 cycles need 10.
constexpr int kChains = 12;

// Makes `values` unknown to the compiler, which could otherwise compute the loop at compile time or
// remove it.
template <typename Vector>
inline void forget(Vector& values) {
  asm volatile("" : "+v"(values));
}

uint64_t f32_avx512(int64_t rounds) {
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.5f);
  forget(a);
  forget(b);
  __m512 sums[kChains] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  for (__m512& sum : sums) forget(sum);
  return 0;
}

uint64_t bf16_avx512(int64_t rounds) {
  __m512i ones = _mm512_set1_epi16(0x3f80);
  forget(ones);
  const auto a = reinterpret_cast<__m512bh>(ones);
  __m512 sums[kChains] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  for (__m512& sum : sums) forget(sum);
  return 0;
}

uint64_t int8_avx512(int64_t rounds) {
  __m512i ones = _mm512_set1_epi8(1);
  forget(ones);
  __m512i sums[kChains] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, ones, ones);
  }
  for (__m512i& sum : sums) forget(sum);
  return 0;
}

}  // namespace
}  // namespace wideep::measure::limits

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace wideep::measure::limits {

const Loops* avx512_loops() {
  static constexpr Loops kTable = {
      .supported =
          [] {
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16") &&
                   __builtin_cpu_supports("avx512vnni");
          },
      .read = read_avx512,
      .copy = copy_avx512,
      .f32 = {f32_avx512, 2 * 16 * kChains},
      .bf16 = {bf16_avx512, 2 * 32 * kChains},
      .int8 = {int8_avx512, 2 * 64 * kChains},
  };
  return &kTable;
}

}  // namespace wideep::measure::limits
#endif
