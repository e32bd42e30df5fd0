// SPDX-License-Identifier: Apache-2.0
//
// copy: fetches experts' records (weights/expert_record.h) into records of this rank, from memory
// that other ranks share with it, a piece of each at every launch, and computes the content hash of
// what has come. A launch copies at most piece_blocks blocks of 1,024 bytes of each record and goes
// on where the last one ended, so that it takes a GPU that also serves for a bounded time; what is
// known of a copy is on the device (CopyState).
//
// The hash is that of the bytes that have been written, read back from the memory, and so also
// finds an error of the copy itself. A copy whose hash is not the expected one ends as kSpoilt.
//
// A copy may wait until its source is offered: a word in this rank's memory that the rank with the
// record, or the host, raises. The wait has a deadline. When the copy has succeeded, it raises a
// word of the source, which from then on may use the record for something else.
//
// Failures of copies do not touch the exchange: an expert that cannot be moved stays where it is.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"
#include "cuda/record_hash.h"
#include "cuda/row_values.h"

namespace wideep::cuda {

enum class CopyResult : uint32_t {
  kUnderWay,
  kDone,
  kSpoilt,      // the hash is another one
  kNotOffered,  // the source was not offered within the deadline
};

struct RecordCopy {
  const std::byte* from = nullptr;    // any alignment
  std::byte* to = nullptr;            // 16-byte aligned
  uint64_t num_bytes = 0;             // at least kMinHashedBytes
  uint64_t expected_hash = 0;         // base::content_hash of the record
  const uint32_t* offered = nullptr;  // of this rank's memory; null: offered from the start
  uint32_t* taken = nullptr;          // of the source's memory; null: nobody waits for it
  uint32_t ticket = 0;  // offered from this value on (numbers wrap around), and set in taken
  int32_t source = -1;  // rank, for messages, as the other two
  int32_t layer = -1;
  int32_t expert = -1;
};

struct CopyState {
  uint64_t accumulators[kHashAccumulators];
  uint64_t blocks_done;  // of kHashBlockBytes
  uint64_t hash;         // of the copy, when it has ended as kDone or kSpoilt
  uint32_t result;       // CopyResult
};

struct CopyRecords {
  static constexpr int kMaxCopies = 1024;

  const RecordCopy* copies = nullptr;  // [num_copies] on the device
  CopyState* states = nullptr;         // [num_copies]
  uint64_t* sums = nullptr;            // [num_copies, piece_blocks, kHashAccumulators] work space
  uint32_t* blocks_done = nullptr;     // of the grid; 0 between launches
  HashSecret secret;
  int32_t num_copies = 0;
  int32_t piece_blocks = 1;
  uint64_t deadline_ns = 0;

  // Bytes of shared memory that a block needs.
  static size_t shared_bytes(int num_copies) {
    return kControlBytes + static_cast<size_t>(num_copies) * sizeof(uint32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    await_offers(lane);
    const int64_t units_of_copy = (piece_blocks + kUnitBlocks - 1) / kUnitBlocks;
    const int64_t units = units_of_copy * num_copies;
    const int64_t step = int64_t{lane.num_blocks()} * lane.num_warps();
    for (int64_t u = int64_t{lane.block()} * lane.num_warps() + lane.warp(); u < units; u += step) {
      copy_unit(lane, static_cast<int>(u / units_of_copy),
                static_cast<int>(u % units_of_copy) * kUnitBlocks);
    }
    if (!is_last_block(lane, blocks_done)) return;
    for (int c = lane.warp(); c < num_copies; c += lane.num_warps()) end_piece(lane, c);
  }

 private:
  static constexpr int kUnitBlocks = 2;  // of a warp, whose loads are under way at the same time
  static constexpr int kVectors = 2;     // of a lane in each
  static constexpr int kStep = kWarpSize * static_cast<int>(sizeof(Vector));

  static constexpr uint32_t result(CopyResult r) { return static_cast<uint32_t>(r); }

  // In shared memory: whether each copy goes on in this launch.
  template <typename Lane>
  WIDEEP_DEVICE static uint32_t* goes_on(Lane& lane) {
    return shared_after_control<uint32_t>(lane);
  }

  // Every block waits for itself: so all its threads see the sources.
  template <typename Lane>
  WIDEEP_DEVICE void await_offers(Lane& lane) const {
    for (int c = lane.thread(); c < num_copies; c += lane.num_threads()) {
      lane.store(goes_on(lane) + c, await_offer(lane, c) ? 1u : 0u);
    }
    lane.sync();
  }

  template <typename Lane>
  WIDEEP_DEVICE bool await_offer(Lane& lane, int c) const {
    if (lane.load_relaxed(&states[c].result) != result(CopyResult::kUnderWay)) return false;
    const uint32_t* offered = lane.load(&copies[c].offered);
    if (offered == nullptr) return true;
    const uint32_t ticket = lane.load(&copies[c].ticket);
    const uint64_t end = lane.now_ns() + deadline_ns;
    for (;;) {
      if (static_cast<int32_t>(lane.load_acquire(offered) - ticket) >= 0) return true;
      if (lane.now_ns() > end) {
        // One block is enough to end the copy, because its part of the piece is missing.
        lane.compare_exchange(&states[c].result, result(CopyResult::kUnderWay),
                              result(CopyResult::kNotOffered));
        return false;
      }
      lane.pause();
    }
  }

  // Copies and sums blocks first … first + kUnitBlocks − 1 of this launch's piece.
  template <typename Lane>
  WIDEEP_DEVICE void copy_unit(Lane& lane, int c, int first) const {
    if (lane.load(goes_on(lane) + c) == 0) return;
    const RecordCopy* copy = copies + c;
    const std::byte* from = lane.load(&copy->from);
    std::byte* to = lane.load(&copy->to);
    const HashParts parts{lane.load(&copy->num_bytes)};
    const uint64_t begin = lane.load(&states[c].blocks_done) + static_cast<uint64_t>(first);
    Vector vectors[kUnitBlocks][kVectors];
    const auto has_block = [&](int b) {
      return first + b < piece_blocks && begin + static_cast<uint64_t>(b) < parts.num_blocks();
    };
    const auto place = [&](int b, int v) {
      return (begin + static_cast<uint64_t>(b)) * kHashBlockBytes +
             static_cast<uint64_t>(v * kStep) + static_cast<uint64_t>(lane.lane()) * sizeof(Vector);
    };
    WIDEEP_UNROLL
    for (int b = 0; b < kUnitBlocks; ++b) {
      WIDEEP_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const uint64_t at = place(b, v);
        if (has_block(b) && at < parts.num_bytes) {
          vectors[b][v] = load_vector(lane, from + at, parts.num_bytes - at);
        }
      }
    }
    WIDEEP_UNROLL
    for (int b = 0; b < kUnitBlocks; ++b) {
      WIDEEP_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const uint64_t at = place(b, v);
        if (has_block(b) && at < parts.num_bytes) {
          store_vector(lane, to + at, vectors[b][v], parts.num_bytes - at);
        }
      }
    }
    WIDEEP_UNROLL
    for (int b = 0; b < kUnitBlocks; ++b) {
      if (!has_block(b)) continue;  // the same in all lanes
      HashPair pair;
      WIDEEP_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        add_vector(lane, to + place(b, v), v, parts.num_stripes(begin + static_cast<uint64_t>(b)),
                   &pair);
      }
      keep_sums(lane, pair, sums_of(c, first + b));
    }
  }

  WIDEEP_DEVICE uint64_t* sums_of(int c, int block) const {
    return sums + (static_cast<int64_t>(c) * piece_blocks + block) * kHashAccumulators;
  }

  // 16 bytes, or the last ones and zeros.
  template <typename Lane>
  WIDEEP_DEVICE static Vector load_vector(Lane& lane, const std::byte* from, uint64_t left) {
    if (left >= sizeof(Vector) && reinterpret_cast<uint64_t>(from) % sizeof(Vector) == 0) {
      return lane.load(reinterpret_cast<const Vector*>(from));
    }
    const auto max = static_cast<uint64_t>(sizeof(Vector));
    return load_units<uint8_t>(lane, from, static_cast<int>(left < max ? left : max));
  }

  template <typename Lane>
  WIDEEP_DEVICE static void store_vector(Lane& lane, std::byte* to, const Vector& vector,
                                         uint64_t left) {
    if (left >= sizeof(Vector)) {
      lane.store(reinterpret_cast<Vector*>(to), vector);
      return;
    }
    WIDEEP_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof(Vector)); ++i) {
      if (static_cast<uint64_t>(i) >= left) continue;
      lane.store(reinterpret_cast<uint8_t*>(to) + i,
                 static_cast<uint8_t>(vector.words[i / 4] >> i % 4 * 8));
    }
  }

  // Reads back the lane's 16 bytes of a block, its v-th, and adds them if their stripe is whole.
  template <typename Lane>
  WIDEEP_DEVICE void add_vector(Lane& lane, const std::byte* from, int v, int num_stripes,
                                HashPair* pair) const {
    const int stripe = v * (kWarpSize / 4) + lane.lane() / 4;
    if (stripe >= num_stripes) return;
    const Vector vector = lane.load_from_memory(reinterpret_cast<const Vector*>(from));
    const int word = stripe + lane.lane() % 4 * 2;  // of the secret: it moves by 8 bytes a stripe
    pair->add(static_cast<uint64_t>(vector.words[1]) << 32 | vector.words[0],
              static_cast<uint64_t>(vector.words[3]) << 32 | vector.words[2], secret.words[word],
              secret.words[word + 1]);
  }

  // Lanes with the same remainder by 4 have the same two accumulators.
  template <typename Lane>
  WIDEEP_DEVICE static void keep_sums(Lane& lane, HashPair pair, uint64_t* to) {
    WIDEEP_UNROLL
    for (int distance = 4; distance < kWarpSize; distance *= 2) {
      pair.first += lane.shuffle(pair.first, lane.lane() ^ distance);
      pair.second += lane.shuffle(pair.second, lane.lane() ^ distance);
    }
    if (lane.lane() >= 4) return;
    lane.store(to + 2 * lane.lane(), pair.first);
    lane.store(to + 2 * lane.lane() + 1, pair.second);
  }

  // The steps in order, by one warp of the last block: lane i has accumulator i % 8.
  template <typename Lane>
  WIDEEP_DEVICE void end_piece(Lane& lane, int c) const {
    CopyState* state = states + c;
    if (lane.load_relaxed(&state->result) != result(CopyResult::kUnderWay)) return;
    const HashParts parts{lane.load(&copies[c].num_bytes)};
    const uint64_t begin = lane.load(&state->blocks_done);
    const uint64_t left = parts.num_blocks() - begin;
    const auto max = static_cast<uint64_t>(piece_blocks);
    const auto n = static_cast<int>(left < max ? left : max);
    const bool is_end = left <= max;
    const int i = lane.lane() % kHashAccumulators;
    const uint64_t scrambler = secret.words[kScrambleSecret + i];
    uint64_t accumulator = lane.load(&state->accumulators[i]);
    constexpr int kAhead = 8;  // sums that are under way at the same time
    for (int first = 0; first < n; first += kAhead) {
      uint64_t ahead[kAhead];
      WIDEEP_UNROLL
      for (int b = 0; b < kAhead; ++b) {
        ahead[b] = first + b < n ? lane.load(sums_of(c, first + b) + i) : 0;
      }
      WIDEEP_UNROLL
      for (int b = 0; b < kAhead; ++b) {
        if (first + b >= n) continue;
        accumulator += ahead[b];
        const bool is_last = is_end && first + b + 1 == n;
        if (!is_last) accumulator = scramble(accumulator, scrambler);
      }
    }
    lane.sync_warp();  // all have read the state
    if (is_end) {
      end_copy(lane, c, parts, accumulator);
      return;
    }
    if (lane.lane() < kHashAccumulators) lane.store(&state->accumulators[i], accumulator);
    if (lane.lane() == 0) lane.store(&state->blocks_done, begin + static_cast<uint64_t>(n));
  }

  // The last 64 bytes once more, lane i with word i; then the hash, in all lanes.
  template <typename Lane>
  WIDEEP_DEVICE void end_copy(Lane& lane, int c, const HashParts& parts,
                              uint64_t accumulator) const {
    const std::byte* stripe = lane.load(&copies[c].to) + (parts.num_bytes - kHashStripeBytes);
    const int i = lane.lane() % kHashAccumulators;
    uint64_t word = 0;
    for (int b = 0; b < 8; ++b) {
      const auto byte = lane.load(reinterpret_cast<const uint8_t*>(stripe) + 8 * i + b);
      word |= static_cast<uint64_t>(byte) << 8 * b;
    }
    const uint64_t next = lane.shuffle(word, i ^ 1);
    HashPair pair;
    pair.add(word, next, secret.at(kLastStripeSecret + 8 * i), 0);
    accumulator += pair.first;
    const uint64_t second = lane.shuffle(accumulator, i | 1);
    uint64_t mixed = mix(accumulator, second, secret, i / 2);  // of use in even lanes
    mixed += lane.shuffle(mixed, i ^ 2);
    mixed += lane.shuffle(mixed, i ^ 4);
    if (lane.lane() != 0) return;
    const uint64_t hash = finish_hash(parts.num_bytes, mixed);
    lane.store(&states[c].hash, hash);
    const bool is_right = hash == lane.load(&copies[c].expected_hash);
    lane.store_relaxed(&states[c].result,
                       result(is_right ? CopyResult::kDone : CopyResult::kSpoilt));
    uint32_t* taken = lane.load(&copies[c].taken);
    if (is_right && taken != nullptr) lane.store_release(taken, lane.load(&copies[c].ticket));
  }
};

// Raises words of other ranks' memory: what the kernels before have written is seen by those that
// wait for them.
struct OfferRecords {
  uint32_t* const* words = nullptr;  // [num_words] on the device
  int32_t num_words = 0;
  uint32_t ticket = 0;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    for (int i = lane.thread(); i < num_words; i += lane.num_threads()) {
      lane.store_release(lane.load(words + i), ticket);
    }
  }
};

}  // namespace wideep::cuda
