// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/limits/loops.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace wideep::measure::limits {
namespace {

constexpr int kLoads = 16;   // half cache lines per turn
constexpr int kChains = 12;  // as in avx512.cc

uint64_t read_avx2(const std::byte* data, size_t bytes) {
  __m256i sums[4] = {};
  for (size_t at = 0; at < bytes; at += size_t{32} * kLoads) {
    for (int i = 0; i < kLoads; ++i) {
      const auto* line = reinterpret_cast<const __m256i*>(data + at + 32 * i);
      sums[i % 4] = _mm256_xor_si256(sums[i % 4], _mm256_load_si256(line));
    }
  }
  const __m256i sum =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
}

void copy_avx2(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 128) {
    for (int i = 0; i < 4; ++i) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32 * i),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(from + at + 32 * i)));
    }
  }
  _mm_sfence();
}

uint64_t f32_avx2(int64_t rounds) {
  __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.5f);
  asm volatile("" : "+v"(a), "+v"(b));  // unknown to the compiler, or it could fold the loop
  __m256 sums[kChains] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  }
  for (__m256& sum : sums) asm volatile("" : "+v"(sum));
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

const Loops* avx2_loops() {
  static constexpr Loops kTable = {
      .supported = [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
      .read = read_avx2,
      .copy = copy_avx2,
      .f32 = {f32_avx2, 2 * 8 * kChains},
  };
  return &kTable;
}

}  // namespace wideep::measure::limits
#endif
