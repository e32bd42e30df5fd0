// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx2/begin.h"

namespace {

// An 8 × 8 transpose of 4-byte words; the columns of `out` are kPanelWidth words apart.
inline void transpose(const std::byte* rows, size_t row_bytes, std::byte* out) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + i * row_bytes));
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const auto store = [&](int column, __m256i words) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 64 * column), words);
    };
    store(c, _mm256_permute2x128_si256(a[c], a[4 + c], 0x20));
    store(c + 4, _mm256_permute2x128_si256(a[c], a[4 + c], 0x31));
  }
}

inline void fetch(const std::byte* bytes) {
  for (int i = 0; i < 8; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(bytes + i * 64), _MM_HINT_T0);
}

}  // namespace

void interleave_rows(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,
                     const std::byte* next) {
  int j = 0;
  for (; j + 8 <= num_words; j += 8) {
    if (next != nullptr) fetch(next + j * 64);
    transpose(rows + j * 4, row_bytes, out + j * 64);
    transpose(rows + 8 * row_bytes + j * 4, row_bytes, out + j * 64 + 32);
  }
  ref::interleave_rows(rows + j * 4, row_bytes, num_words - j, out + j * 64, nullptr);
}

//
#include "kernels/avx2/end.h"
#endif
