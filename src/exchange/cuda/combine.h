// SPDX-License-Identifier: Apache-2.0
//
// combine: raises the flag that this rank's results are written, awaits those of all ranks, and
// sums up each token's results where the experts have written them:
//
//   out[i] = (Σ_k weights[k] · results[k][i]) + shared[i]
//
// in float32 in top-k order, one fused multiply-add each, rounded once to bf16: the bits of
// kernels/reduce.h, for every format of results. A warp sums up a part of a token at a time: every
// lane 16 bytes of each result.
//
// If results are reduced (reduce_results.h), there is one for each rank of the token's slots, which
// already has the weights: they are added in the order of ranks.
//
// Thread safety: a kernel.
#pragma once

#include <cmath>
#include <type_traits>

#include "cuda/protocol.h"
#include "cuda/row_values.h"
#include "cuda/token_route.h"

namespace wideep::cuda {

struct CombineArgs {
  Exchange x;
  Tokens tokens;
  const float* shared_expert = nullptr;  // [num_tokens, hidden], or null: none
  std::byte* out = nullptr;              // [num_tokens] rows of hidden bf16
  uint64_t out_stride = 0;               // bytes, a multiple of 16; out is 16-byte aligned
  int32_t hidden = 0;
  int32_t layer = 0;
};

template <RowFormat kFormat, bool kIsReduced>
struct SumResults {
  CombineArgs args;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const Exchange& x = args.x;
    const uint32_t call = begin_call(lane, x);
    if (call == 0) return;
    if (lane.block() == 0) raise(lane, x, Channel::kCombine, call);
    if (!await_ranks(lane, x, Channel::kCombine, call, args.layer)) return;
    const int n = lane.load(args.tokens.num_tokens);
    const int parts = (args.hidden + kPart - 1) / kPart;
    const int64_t units = int64_t{n} * parts;
    const int64_t step = int64_t{lane.num_blocks()} * lane.num_warps();
    for (int64_t u = int64_t{lane.block()} * lane.num_warps() + lane.warp(); u < units; u += step) {
      const auto token = static_cast<int>(u / parts);
      sum_part(lane, token, static_cast<int>(u % parts) * kPart + lane.lane() * kValues);
    }
    if (is_last_block(lane, &x.state->blocks_combined) && lane.thread() == 0) {
      lane.store(&x.state->calls_done, call);
    }
  }

 private:
  static constexpr int kValues = values_of_vector(kFormat);  // of a lane
  static constexpr int kPart = kValues * kWarpSize;
  static constexpr int kAhead = 4;  // results whose loads are under way at the same time

  // first: the lane's first value of the row.
  template <typename Lane>
  WIDEEP_DEVICE void sum_part(Lane& lane, int token, int first) const {
    const Exchange& x = args.x;
    int top_k = x.layout.shape().top_k;
    const TokenRoute route = find_route(lane, x, args.tokens, token);
    uint64_t result = 0;  // the address of the result of this lane's slot
    float weight = 0.0f;
    if (route.rank >= 0) {
      result = reinterpret_cast<uint64_t>(
          x.layout.result(x.segments[route.rank], x.rank, route.message, route.place));
      weight = lane.load(args.tokens.weights + static_cast<int64_t>(token) * top_k + lane.lane());
    }
    if constexpr (kIsReduced) {
      result = by_rank(lane, route, result);
      weight = 1.0f;
      top_k = num_bits(route.first_lanes);
    }
    const bool has_values = first < args.hidden;
    float sums[kValues] = {};
    for (int k = 0; k < top_k; k += kAhead) {
      Vector codes[kAhead];
      VectorScales scales[kAhead];
      float weights[kAhead];
      WIDEEP_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int lane_of_slot = k + i < top_k ? k + i : 0;
        const auto* row = reinterpret_cast<const std::byte*>(lane.shuffle(result, lane_of_slot));
        weights[i] = lane.shuffle(weight, lane_of_slot);
        if (has_values && k + i < top_k) load(lane, row, first, &codes[i], &scales[i]);
      }
      WIDEEP_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (has_values && k + i < top_k) add(codes[i], scales[i], weights[i], sums);
      }
    }
    if (has_values) write(lane, token, first, sums);
  }

  // Lane i gets the result of the token's i-th rank, ascending.
  template <typename Lane>
  WIDEEP_DEVICE static uint64_t by_rank(Lane& lane, const TokenRoute& route, uint64_t result) {
    int place = 0;  // of this lane's rank
    for (uint32_t left = route.first_lanes; left != 0; left &= left - 1) {
      if (lane.shuffle(route.rank, lowest_bit(left)) < route.rank) ++place;
    }
    uint64_t mine = 0;
    for (uint32_t left = route.first_lanes; left != 0; left &= left - 1) {
      const int from = lowest_bit(left);
      const uint64_t other = lane.shuffle(result, from);
      if (lane.shuffle(place, from) == lane.lane()) mine = other;
    }
    return mine;
  }

  template <typename Lane>
  WIDEEP_DEVICE void load(Lane& lane, const std::byte* row, int first, Vector* codes,
                          VectorScales* scales) const {
    if constexpr (kernels::is_coded(kFormat)) {
      // Rows are padded, so that the last vector is whole; of its values the first exist.
      *codes = lane.load(reinterpret_cast<const Vector*>(row + first * 16 / kValues));
      *scales = scales_of<kFormat>(lane, row, args.hidden, first);
    } else {
      using Unit = std::conditional_t<kFormat == RowFormat::kBf16, uint16_t, uint32_t>;
      const int left = (args.hidden - first) * static_cast<int>(sizeof(Unit));
      const std::byte* from = row + static_cast<size_t>(first) * sizeof(Unit);
      *codes = left >= static_cast<int>(sizeof(Vector))
                   ? lane.load(reinterpret_cast<const Vector*>(from))
                   : load_units<Unit>(lane, from, left);
    }
  }

  WIDEEP_DEVICE static void add(const Vector& codes, const VectorScales& scales, float weight,
                                float (&sums)[kValues]) {
    WIDEEP_UNROLL
    for (int i = 0; i < kValues; ++i) {
      float factor = weight;
      if constexpr (kernels::is_coded(kFormat)) factor = weight * scales.of[i / 16];
      sums[i] = fused_multiply_add(factor, code_of<kFormat>(codes, i), sums[i]);
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE void write(Lane& lane, int token, int first, float (&sums)[kValues]) const {
    const int left = args.hidden - first;
    if (args.shared_expert != nullptr) {
      const float* shared = args.shared_expert + static_cast<int64_t>(token) * args.hidden + first;
      WIDEEP_UNROLL
      for (int i = 0; i < kValues; ++i) {
        if (i < left) sums[i] += lane.load(shared + i);
      }
    }
    auto* out =
        reinterpret_cast<uint16_t*>(args.out + static_cast<uint64_t>(token) * args.out_stride) +
        first;
    constexpr int kTogether = kValues < 8 ? kValues : 8;
    WIDEEP_UNROLL
    for (int begin = 0; begin < kValues; begin += kTogether) {
      uint32_t words[kTogether / 2];
      WIDEEP_UNROLL
      for (int i = 0; i < kTogether; i += 2) {
        words[i / 2] = static_cast<uint32_t>(Bf16::round(sums[begin + i])) |
                       static_cast<uint32_t>(Bf16::round(sums[begin + i + 1])) << 16;
      }
      if (begin + kTogether <= left) {
        store_words(lane, reinterpret_cast<uint32_t*>(out + begin), words);
        continue;
      }
      WIDEEP_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const auto bits = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
        if (begin + i < left) lane.store(out + begin + i, bits);
      }
    }
  }

  template <typename Lane, int kWords>
  WIDEEP_DEVICE static void store_words(Lane& lane, uint32_t* to, const uint32_t (&words)[kWords]) {
    if constexpr (kWords == 4) {
      lane.store(reinterpret_cast<Vector*>(to), Vector{{words[0], words[1], words[2], words[3]}});
    } else {
      lane.store(reinterpret_cast<uint64_t*>(to),
                 static_cast<uint64_t>(words[1]) << 32 | static_cast<uint64_t>(words[0]));
    }
  }

  WIDEEP_DEVICE static float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return std::fma(a, b, c);
#endif
  }
};

template <RowFormat kFormat>
struct Combine : SumResults<kFormat, false> {};
template <RowFormat kFormat>
struct CombineReduced : SumResults<kFormat, true> {};

}  // namespace wideep::cuda
