// SPDX-License-Identifier: Apache-2.0
//
// Each stripe is read once, into registers, and from there is written and hashed: what is hashed is
// what is written, also where the source changes meanwhile, and the hash costs little beside the
// memory. Written past the cache, so that a line that is overwritten is not read first.
//
// XXH3 as its authors describe it (doc/xxhash_spec.md of github.com/Cyan4973/xxHash): blocks of 16
// stripes of 8 words, each word adds to its own sum and its neighbour's; sums are scrambled between
// blocks. The last block has 1 to 1,024 bytes, and is not scrambled.
#include "store/checked_copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/content_hash.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WIDEEP_RACES_ARE_MEANT __attribute__((no_sanitize("thread")))
#define WIDEEP_TSAN 1
#endif
#endif
#if !defined(WIDEEP_RACES_ARE_MEANT)
#define WIDEEP_RACES_ARE_MEANT
#endif
#if defined(__x86_64__) && !defined(WIDEEP_TSAN)
#define WIDEEP_STREAMS 1  // writes past the cache
#endif

namespace wideep::store {
namespace {

constexpr size_t kStripe = 64, kBlock = 1024;
constexpr size_t kStripesOfBlock = kBlock / kStripe;
constexpr size_t kScrambleSecret = 128;    // where in the secret: between blocks,
constexpr size_t kLastStripeSecret = 121;  // for the last stripe,
constexpr size_t kMergeSecret = 11;        // and for what is left of the sums
constexpr uint64_t kPrime32 = 0x9e3779b1;
constexpr uint64_t kPrime64 = 0x9e3779b185ebca87;
constexpr size_t kMaxShort = 240;  // bytes up to which the hash is another one

__extension__ using Wide = unsigned __int128;
using Sums = std::array<uint64_t, 8>;

uint64_t word_at(const void* bytes, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, static_cast<const char*>(bytes) + offset, sizeof(word));
  return word;
}

void add_stripe(Sums& sums, const std::byte* stripe, const void* secret, size_t secret_at) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint64_t word = word_at(stripe, 8 * i);
    const uint64_t key = word ^ word_at(secret, secret_at + 8 * i);
    sums[i ^ 1] += word;
    sums[i] += (key & 0xffffffff) * (key >> 32);
  }
}

void add_block(Sums& sums, const std::byte* block, const void* secret) {
  for (size_t i = 0; i < kStripesOfBlock; ++i) add_stripe(sums, block + i * kStripe, secret, 8 * i);
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] = (sums[i] ^ sums[i] >> 47 ^ word_at(secret, kScrambleSecret + 8 * i)) * kPrime32;
  }
}

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

// Whole blocks.
WIDEEP_RACES_ARE_MEANT void copy_blocks(Sums& sums, const std::byte* from, std::byte* to,
                                        size_t num_bytes, const void* secret) {
  alignas(kStripe) std::byte block[kBlock];
  for (size_t at = 0; at < num_bytes; at += kBlock) {
    copy_plainly(from + at, block, kBlock);
    add_block(sums, block, secret);
    copy_plainly(block, to + at, kBlock);
  }
}

#if defined(WIDEEP_STREAMS)

constexpr size_t kAhead = 4096;  // the processor's own prefetching ends with each page

#define WIDEEP_AVX2 __attribute__((target("avx2")))

WIDEEP_AVX2 inline __m256i load(const void* at, size_t offset) {
  return _mm256_loadu_si256(
      reinterpret_cast<const __m256i*>(static_cast<const char*>(at) + offset));
}

// What four words add to their sums.
WIDEEP_AVX2 inline __m256i add_words(__m256i sums, __m256i words, __m256i key) {
  const __m256i keyed = _mm256_xor_si256(words, key);
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i neighbours = _mm256_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(sums, _mm256_add_epi64(product, neighbours));
}

WIDEEP_AVX2 inline __m256i scramble(__m256i sums, __m256i key) {
  const __m256i mixed = _mm256_xor_si256(_mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47)), key);
  const __m256i prime = _mm256_set1_epi64x(kPrime32);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
  return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

// REQUIRES: `to` on a boundary of 32 bytes.
WIDEEP_AVX2 void copy_blocks_avx2(Sums& sums, const std::byte* from, std::byte* to,
                                  size_t num_bytes, const void* secret) {
  __m256i low = load(sums.data(), 0), high = load(sums.data(), 32);
  for (size_t block = 0; block < num_bytes; block += kBlock) {
    for (size_t i = 0; i < kStripesOfBlock; ++i) {
      const size_t at = block + i * kStripe;
      // Beyond the end, too: it is not read.
      _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(from) + at + kAhead),
                   _MM_HINT_T0);
      const __m256i a = load(from, at), b = load(from, at + 32);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), b);
      low = add_words(low, a, load(secret, 8 * i));
      high = add_words(high, b, load(secret, 8 * i + 32));
    }
    low = scramble(low, load(secret, kScrambleSecret));
    high = scramble(high, load(secret, kScrambleSecret + 32));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.data()), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.data() + 4), high);
}

#endif

void copy_whole_blocks(Sums& sums, const std::byte* from, std::byte* to, size_t num_bytes,
                       const void* secret) {
#if defined(WIDEEP_STREAMS)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2 && reinterpret_cast<uintptr_t>(to) % sizeof(__m256i) == 0) {
    copy_blocks_avx2(sums, from, to, num_bytes, secret);
    return;
  }
#endif
  copy_blocks(sums, from, to, num_bytes, secret);
}

}  // namespace

CheckedCopy::CheckedCopy(uint64_t num_bytes)
    : secret_(base::content_hash_secret()),
      sums_{0xc2b2ae3d,         kPrime64,   0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
            0x85ebca77c2b2ae63, 0x85ebca77, 0x27d4eb2f165667c5, kPrime32},
      num_bytes_(num_bytes) {}

void CheckedCopy::copy(const std::byte* from, std::byte* to, size_t num_bytes) {
  WIDEEP_CHECK_LE(num_bytes, num_bytes_ - copied_);
  std::byte* const block = recent_.data() + kStripe;
  while (num_bytes > 0) {
    size_t taken = 0;
    if (pending_ == 0 && num_bytes >= kBlock && num_bytes_ - copied_ > kBlock) {
      taken = std::min<uint64_t>(num_bytes, num_bytes_ - copied_ - 1) / kBlock * kBlock;
      copy_whole_blocks(sums_, from, to, taken, secret_.data());
      // Too little is left for a last stripe: it begins here.
      if (num_bytes_ - copied_ - taken < kStripe) {
        copy_plainly(to + taken - kStripe, recent_.data(), kStripe);
      }
    } else {
      taken = std::min(num_bytes, kBlock - pending_);
      copy_plainly(from, block + pending_, taken);
      copy_plainly(block + pending_, to, taken);
      pending_ += taken;
      if (pending_ == kBlock && copied_ + taken < num_bytes_) {
        add_block(sums_, block, secret_.data());
        std::memcpy(recent_.data(), block + kBlock - kStripe, kStripe);
        pending_ = 0;
      }
    }
    copied_ += taken;
    from += taken;
    to += taken;
    num_bytes -= taken;
  }
}

uint64_t CheckedCopy::hash() const {
  WIDEEP_CHECK_EQ(copied_, num_bytes_);
#if defined(WIDEEP_STREAMS)
  _mm_sfence();
#endif
  const std::byte* const block = recent_.data() + kStripe;
  if (num_bytes_ <= kMaxShort) return base::content_hash(block, num_bytes_);
  Sums sums = sums_;
  const size_t stripes = (pending_ - 1) / kStripe;
  for (size_t i = 0; i < stripes; ++i) add_stripe(sums, block + i * kStripe, secret_.data(), 8 * i);
  add_stripe(sums, block + pending_ - kStripe, secret_.data(), kLastStripeSecret);
  uint64_t hash = num_bytes_ * kPrime64;
  for (size_t i = 0; i < sums.size(); i += 2) {
    const uint64_t a = sums[i] ^ word_at(secret_.data(), kMergeSecret + 8 * i);
    const uint64_t b = sums[i + 1] ^ word_at(secret_.data(), kMergeSecret + 8 * i + 8);
    const Wide product = static_cast<Wide>(a) * b;
    hash += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  hash = (hash ^ hash >> 37) * 0x165667919e3779f9;
  return hash ^ hash >> 32;
}

}  // namespace wideep::store
