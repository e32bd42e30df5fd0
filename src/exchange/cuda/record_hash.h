// SPDX-License-Identifier: Apache-2.0
//
// base::content_hash (XXH3 with 64 bits) in parts, so that a GPU can compute it: of more than 240
// bytes, little-endian.
//
// XXH3 reads blocks of 1,024 bytes, 16 stripes of 8 words. Within a block it only adds to 8
// accumulators, so the sums of a block do not depend on the blocks before: all blocks are summed at
// the same time, each 16 bytes by themselves. What comes in order is one step per block and
// accumulator, 1/16 of the bytes: add the sum, scramble. The algorithm, as its authors describe it:
// doc/xxhash_spec.md of github.com/Cyan4973/xxHash.
//
//   blocks 0 … num_scrambled − 1: 16 stripes each, scrambled after each block
//   one more block: the whole stripes of all but the last byte; not scrambled
//   the last 64 bytes once more, with another part of the secret; then all accumulators are mixed
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/lane.h"

namespace wideep::cuda {

inline constexpr uint64_t kHashBlockBytes = 1024;
inline constexpr uint64_t kHashStripeBytes = 64;
inline constexpr int kHashAccumulators = 8;
inline constexpr uint64_t kMinHashedBytes = 241;  // shorter inputs have a hash of another kind

struct HashSecret {
  uint64_t words[24];  // base::content_hash_secret

  // 8 bytes at any byte.
  WIDEEP_HOST_DEVICE uint64_t at(int byte) const {
    const int shift = byte % 8 * 8;
    const uint64_t low = words[byte / 8];
    return shift == 0 ? low : low >> shift | words[byte / 8 + 1] << (64 - shift);
  }
};

struct HashParts {
  uint64_t num_bytes = 0;

  WIDEEP_HOST_DEVICE uint64_t num_scrambled() const { return (num_bytes - 1) / kHashBlockBytes; }
  WIDEEP_HOST_DEVICE uint64_t num_blocks() const { return num_scrambled() + 1; }
  // Whole stripes of a block that are summed.
  WIDEEP_HOST_DEVICE int num_stripes(uint64_t block) const {
    if (block < num_scrambled()) return static_cast<int>(kHashBlockBytes / kHashStripeBytes);
    return static_cast<int>((num_bytes - 1) % kHashBlockBytes / kHashStripeBytes);
  }
};

// What two words add to accumulators 2i and 2i + 1, where they are words 2i and 2i + 1 of a stripe.
struct HashPair {
  uint64_t first = 0, second = 0;

  WIDEEP_HOST_DEVICE void add(uint64_t word, uint64_t next, uint64_t secret, uint64_t next_secret) {
    first += product(word ^ secret) + next;
    second += product(next ^ next_secret) + word;
  }

 private:
  WIDEEP_HOST_DEVICE static uint64_t product(uint64_t key) {
    return (key & 0xffffffffu) * (key >> 32);
  }
};

// Primes of the algorithm.
inline constexpr uint64_t kPrimeA = 0x9e3779b1u;
inline constexpr uint64_t kPrimeB = 0x9e3779b185ebca87u;
inline constexpr uint64_t kPrimeC = 0x165667919e3779f9u;

// The accumulators before the first block.
inline constexpr uint64_t kFirstAccumulators[kHashAccumulators] = {
    0xc2b2ae3du,         kPrimeB,     0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u,
    0x85ebca77c2b2ae63u, 0x85ebca77u, 0x27d4eb2f165667c5u, kPrimeA};

// Accumulator i after a block that is scrambled.
WIDEEP_HOST_DEVICE uint64_t scramble(uint64_t accumulator, uint64_t secret) {
  return (accumulator ^ accumulator >> 47 ^ secret) * kPrimeA;
}
inline constexpr int kScrambleSecret = 16;     // word of the secret for accumulator 0
inline constexpr int kLastStripeSecret = 121;  // byte of the secret
inline constexpr int kMixSecret = 11;          // byte of the secret

WIDEEP_HOST_DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  const uint64_t a_low = a & 0xffffffffu, a_high = a >> 32;
  const uint64_t b_low = b & 0xffffffffu, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
  const uint64_t other = a_low * b_high + (middle & 0xffffffffu);
  return a_high * b_high + (middle >> 32) + (other >> 32);
#endif
}

// What accumulators 2i and 2i + 1 add to the hash.
WIDEEP_HOST_DEVICE uint64_t mix(uint64_t first, uint64_t second, const HashSecret& secret, int i) {
  const uint64_t a = first ^ secret.at(kMixSecret + 16 * i);
  const uint64_t b = second ^ secret.at(kMixSecret + 16 * i + 8);
  return a * b ^ multiply_high(a, b);
}

// The hash from the sum of the four pairs.
WIDEEP_HOST_DEVICE uint64_t finish_hash(uint64_t num_bytes, uint64_t sum) {
  uint64_t hash = num_bytes * kPrimeB + sum;
  hash ^= hash >> 37;
  hash *= kPrimeC;
  return hash ^ hash >> 32;
}

}  // namespace wideep::cuda
