// SPDX-License-Identifier: Apache-2.0
//
// In pieces, through a buffer that stays in the cache: what is hashed is what is written, also where
// the source changes meanwhile. While a piece is hashed and written the next one is on its way from
// memory. Written past the cache, so that the line that is overwritten is not read first.
#include "store/checked_copy.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WIDEEP_RACES_ARE_MEANT __attribute__((no_sanitize("thread")))
#define WIDEEP_TSAN 1
#endif
#endif
#if !defined(WIDEEP_RACES_ARE_MEANT)
#define WIDEEP_RACES_ARE_MEANT
#endif

namespace wideep::store {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 10;
constexpr size_t kLine = 64;

// The sanitizer sees every call of memcpy.
WIDEEP_RACES_ARE_MEANT void copy_plainly(const std::byte* from, std::byte* to, size_t num_bytes) {
#if defined(WIDEEP_TSAN)
  for (size_t i = 0; i < num_bytes; ++i) {
    const_cast<volatile std::byte*>(to)[i] = const_cast<const volatile std::byte*>(from)[i];
  }
#else
  std::memcpy(to, from, num_bytes);
#endif
}

// next: of as many bytes, that will be read soon; nullptr: none.
WIDEEP_RACES_ARE_MEANT void write_past_cache(const std::byte* from, std::byte* to, size_t num_bytes,
                                             [[maybe_unused]] const std::byte* next) {
#if defined(__SSE2__) && !defined(WIDEEP_TSAN)
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    const size_t whole = num_bytes / kLine * kLine;
    for (size_t i = 0; i < whole; i += kLine) {
      if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
      const auto* source = reinterpret_cast<const __m128i*>(from + i);
      auto* target = reinterpret_cast<__m128i*>(to + i);
      const __m128i a = _mm_load_si128(source), b = _mm_load_si128(source + 1);
      const __m128i c = _mm_load_si128(source + 2), d = _mm_load_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + whole, from + whole, num_bytes - whole);
    return;
  }
#endif
  copy_plainly(from, to, num_bytes);
}

}  // namespace

void CheckedCopy::copy(const std::byte* from, std::byte* to, size_t num_bytes) {
  alignas(kLine) std::byte piece[kPieceBytes];
  for (size_t at = 0; at < num_bytes; at += kPieceBytes) {
    const size_t bytes = std::min(num_bytes - at, kPieceBytes);
    copy_plainly(from + at, piece, bytes);
    hash_.add(piece, bytes);
    const bool has_next = at + 2 * kPieceBytes <= num_bytes;
    write_past_cache(piece, to + at, bytes, has_next ? from + at + kPieceBytes : nullptr);
  }
#if defined(__SSE2__) && !defined(WIDEEP_TSAN)
  _mm_sfence();  // whoever is told of the bytes from now on sees them
#endif
}

}  // namespace wideep::store
