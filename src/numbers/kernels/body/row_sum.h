// SPDX-License-Identifier: Apache-2.0
//
// kernels/reduce.h in F32x16, for every instruction set. The same bits as ref. Included inside a
// region, after body/row_format.h.
//
// A step is kStep values of all rows: their sums stay in registers while the rows are added, then
// are put in order, and stored by Finish. The order within a step differs by format, because each
// lane is its own chain: only the order of rows matters for the bits.
#pragma once

// Stores sums: adds the shared expert and x, or rounds. A template, so that nothing is tested per
// value.
template <bool kAddsToX, bool kHasShared>
struct Finish {
  static void two(const ReduceArgs& args, int i, F32x16 first, F32x16 second) {
    const int next = i + kPanelWidth;
    if (kHasShared) {
      first = add(first, load(args.shared + i));
      second = add(second, load(args.shared + next));
    }
    if (kAddsToX) {
      // A scale of 1 makes these plain additions, at the same cost.
      const F32x16 scale = set1(args.scale);
      store(args.x + i, fma(scale, first, load(args.x + i)));
      store(args.x + next, fma(scale, second, load(args.x + next)));
    } else {
      store_exact(args.sum + i, first, second);
    }
  }
  // Stores 32 sums, given as those of the first and of the second values of pairs.
  static void pairs(const ReduceArgs& args, int i, F32x16 even, F32x16 odd) {
    if (!kAddsToX && !kHasShared && round_alike(even, odd)) {
      return store_bf16_pairs(args.sum + i, even, odd);
    }
    interleave(&even, &odd);
    two(args, i, even, odd);
  }
  // Stores the sums of a step, in the format's own order. Inlined, so that they stay in registers.
  template <typename Rows>
  [[gnu::always_inline]] static void step(const ReduceArgs& args, int first, F32x16* sums) {
    Rows::put_in_order(sums);
#pragma GCC unroll 16
    for (int v = 0; v < Rows::kStep / kPanelWidth; v += 2) {
      const int i = first + v * kPanelWidth;
      Rows::kInPairs ? pairs(args, i, sums[v], sums[v + 1]) : two(args, i, sums[v], sums[v + 1]);
    }
  }
  static void part(const ReduceArgs& args, int i, int count, F32x16 sum) {
    if (kHasShared) sum = add(sum, load_n(args.shared + i, count));
    if (kAddsToX) {
      store_n(args.x + i, fma(set1(args.scale), sum, load_n(args.x + i, count)), count);
    } else {
      Bf16 rounded[kPanelWidth];
      store_exact(rounded, sum);
      std::memcpy(args.sum + i, rounded, static_cast<size_t>(count) * sizeof(Bf16));
    }
  }
};

// For rows whose sums are all known to be rounded alike by the conversion instruction
// (round_alike).
struct FinishAlike : Finish<false, false> {
  template <typename Rows>
  [[gnu::always_inline]] static void step(const ReduceArgs& args, int first, F32x16* sums) {
    Rows::store_rounded(args.sum + first, sums);
  }
};

// The prefetch distance in bytes per row. Hardware prefetchers do not follow eight rows at the same
// time. All rows together have about 4 KiB in flight, however few rows there are, which hides the
// latency of lines from another core's cache.
inline size_t bytes_ahead(int top_k) { return std::max<size_t>(512, 4096 / std::max(top_k, 1)); }
inline void fetch(const std::byte* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

// The interface of a format's rows. A step is kStep values; each has its own lane of sums.
//
//   add_step      sums += weight · row[k … k + kStep), in an order that suits the format;
//                 prefetches the line `ahead` bytes further on
//   put_in_order  puts sums into the order of the row (kInPairs: except within pairs)
//   add_part      as add_step for up to 16 values, for the rest of a row
//
// A format whose scales take a long chain of instructions splits add_step, so that the first half
// can run earlier, for up to kRowsAtOnce rows:
//
//   weigh         the factors of row[k … k + kStep), kWeights vectors
//   add_weighed   sums += weights · row[k … k + kStep)
//
// A format may be able to prove from scales alone that no sum is subnormal or NaN:
//
//   round_alike   whether that is so for all sums of these rows
//   store_rounded puts such sums in order and rounds them

struct SumOfF32 {
  static constexpr int kStep = kSumLines * kPanelWidth;
  static constexpr bool kInPairs = false;
  static constexpr int kRowsAtOnce = 1;
  static void add_step(const std::byte* row, int, int k, F32x16 weight, size_t ahead,
                       F32x16* sums) {
    const float* values = reinterpret_cast<const float*>(row) + k;
#pragma GCC unroll 4
    for (int v = 0; v < kSumLines; ++v) {
      const float* line = values + v * kPanelWidth;
      fetch(reinterpret_cast<const std::byte*>(line) + ahead);
      sums[v] = fma(weight, load(line), sums[v]);
    }
  }
  static void put_in_order(F32x16*) {}
  static F32x16 add_part(const std::byte* row, int, int k, int count, F32x16 weight, F32x16 sum) {
    return fma(weight, load_n(reinterpret_cast<const float*>(row) + k, count), sum);
  }
};

// A line's first values of pairs, then its second values: one instruction each widens them to
// float32.
struct SumOfBf16 {
  static constexpr int kVectors = 2 * kSumLines;
  static constexpr int kStep = kVectors * kPanelWidth;
  static constexpr bool kInPairs = true;
  static constexpr int kRowsAtOnce = 1;
  static void add_step(const std::byte* row, int, int k, F32x16 weight, size_t ahead,
                       F32x16* sums) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += 2) {
      const std::byte* line = row + static_cast<size_t>(k + v * kPanelWidth) * sizeof(Bf16);
      fetch(line + ahead);
      const Line pairs = load_line(line);
      sums[v] = fma(weight, evens(pairs), sums[v]);
      sums[v + 1] = fma(weight, odds(pairs), sums[v + 1]);
    }
  }
  static void put_in_order(F32x16*) {}
  static F32x16 add_part(const std::byte* row, int, int k, int count, F32x16 weight, F32x16 sum) {
    return fma(weight, load_n(reinterpret_cast<const Bf16*>(row) + k, count), sum);
  }
};

struct SumOfFp8 {
  static constexpr int kStep = Fp8Rows::kStep;
  static constexpr bool kInPairs = kFp8SumsInPairs;
  static constexpr int kRowsAtOnce = 1;
  static void add_step(const std::byte* row, int hidden, int k, F32x16 weight, size_t ahead,
                       F32x16* sums) {
    const F32x16 of_group = mul(weight, set1(Fp8Rows::scale(row, hidden, k)));
#pragma GCC unroll 2
    for (int line = 0; line < kStep; line += 64) {
      fetch(row + k + line + ahead);
      add_e4m3_line(row + k + line, of_group, sums + line / kPanelWidth);
    }
  }
  static void put_in_order(F32x16*) {}
  static F32x16 add_part(const std::byte* row, int hidden, int k, int, F32x16 weight, F32x16 sum) {
    const F32x16 of_group = mul(weight, set1(Fp8Rows::scale(row, hidden, k)));
    return fma(of_group, mul(load_256ths_of_e4m3(row + k), set1(256.0f)), sum);
  }
};

// Lines: E2m1Lines of the instruction set.
template <typename Lines>
struct SumOfNvfp4 {
  static constexpr int kStep = Lines::kLines * 8 * kPanelWidth;
  static constexpr bool kInPairs = false;
  static constexpr int kRowsAtOnce = Lines::kRowsAtOnce;
  static constexpr int kWeights = Lines::kLines;
  static F32x16 of_groups(const std::byte* row, int hidden, int k, int count, F32x16 weight) {
    return mul(weight, Nvfp4Rows::scales(row, hidden, k, count));
  }
  static void weigh(const std::byte* row, int hidden, int k, F32x16 weight, F32x16* weights) {
    Lines::spread(of_groups(row, hidden, k, kStep / kNvfp4RowGroup, weight), weights);
  }
  static void add_weighed(const std::byte* row, int k, const F32x16* weights, size_t ahead,
                          F32x16* sums) {
#pragma GCC unroll 2
    for (int line = 0; line < Lines::kLines; ++line) {
      const std::byte* codes = row + k / 2 + line * 64;
      fetch(codes + ahead);
      Lines::add(codes, weights[line], sums + line * 8);
    }
  }
  static void add_step(const std::byte* row, int hidden, int k, F32x16 weight, size_t ahead,
                       F32x16* sums) {
    F32x16 weights[kWeights];
    weigh(row, hidden, k, weight, weights);
    add_weighed(row, k, weights, ahead, sums);
  }
  static void put_in_order(F32x16* sums) {
#pragma GCC unroll 2
    for (int line = 0; line < Lines::kLines; ++line) Lines::put_in_order(sums + line * 8);
  }
  // Every product is a multiple of half the last bit of weight · scale, so a sum is zero or at
  // least that large: with the bounds below never subnormal. Nor can it overflow. A group's scale
  // is the row's scale times 2⁻⁹ … 448.
  static bool round_alike(const ReduceArgs& args) {
    for (int k = 0; k < args.top_k; ++k) {
      const float of_row = get_float(args.rows[k] + row_scales_end(RowFormat::kNvfp4, args.n));
      const float weight = args.weights[k], product = std::abs(weight * of_row);
      const bool is_zero = product == 0.0f && (weight == 0.0f || of_row == 0.0f);
      if (!is_zero && !(product >= 0x1p-90f && product <= 0x1p100f)) return false;
    }
    return true;
  }
  static void store_rounded(Bf16* p, const F32x16* sums)
    requires requires { &Lines::store_rounded; }
  {
#pragma GCC unroll 2
    for (int line = 0; line < Lines::kLines; ++line) {
      Lines::store_rounded(p + line * 8 * kPanelWidth, sums + line * 8);
    }
  }
  static F32x16 add_part(const std::byte* row, int hidden, int k, int, F32x16 weight, F32x16 sum) {
    alignas(64) float weights[kPanelWidth];
    store(weights, of_groups(row, hidden, k, 1, weight));
    return fma(set1(weights[0]), load_e2m1(row + k / 2), sum);
  }
};

// Sums [0, whole), whole steps. A step has several vectors, whose chains of additions overlap.
template <typename Rows, typename Finish>
inline void reduce_steps(const ReduceArgs& args, int whole) {
  const size_t ahead = bytes_ahead(args.top_k);
  for (int at = 0; at < whole; at += Rows::kStep) {
    F32x16 sums[Rows::kStep / kPanelWidth];
#pragma GCC unroll 16
    for (F32x16& sum : sums) sum = zero();
    for (int k = 0; k < args.top_k; ++k) {
      Rows::add_step(args.rows[k], args.n, at, set1(args.weights[k]), ahead, sums);
    }
    Finish::template step<Rows>(args, at, sums);
  }
}

// As reduce_steps; computes the factors of a row's next step right after this step has been added,
// so that their latency is hidden by the other rows. REQUIRES: args.top_k <= Rows::kRowsAtOnce,
// whole > 0
template <typename Rows, typename Finish>
inline void reduce_weighed_steps(const ReduceArgs& args, int whole) {
  const size_t ahead = bytes_ahead(args.top_k);
  F32x16 weights[Rows::kRowsAtOnce * Rows::kWeights];
  const auto weigh = [&](int k, int at) {
    Rows::weigh(args.rows[k], args.n, at, set1(args.weights[k]), weights + k * Rows::kWeights);
  };
  for (int k = 0; k < args.top_k; ++k) weigh(k, 0);
  for (int at = 0; at < whole; at += Rows::kStep) {
    const int next = at + Rows::kStep < whole ? at + Rows::kStep : at;
    F32x16 sums[Rows::kStep / kPanelWidth];
#pragma GCC unroll 16
    for (F32x16& sum : sums) sum = zero();
    for (int k = 0; k < args.top_k; ++k) {
      Rows::add_weighed(args.rows[k], at, weights + k * Rows::kWeights, ahead, sums);
      weigh(k, next);
    }
    Finish::template step<Rows>(args, at, sums);
  }
}

template <typename Rows, typename Finish>
inline void reduce_rows(const ReduceArgs& args) {
  const int whole = args.n - args.n % Rows::kStep;
  bool weighs_ahead = false;
  if constexpr (Rows::kRowsAtOnce > 1) {
    weighs_ahead = whole > 0 && args.top_k <= Rows::kRowsAtOnce;
    if (weighs_ahead) reduce_weighed_steps<Rows, Finish>(args, whole);
  }
  if (!weighs_ahead) reduce_steps<Rows, Finish>(args, whole);
  for_each_vector(args.n - whole, [&](int at, int count) {
    const int i = whole + at;
    F32x16 sum = zero();
    for (int k = 0; k < args.top_k; ++k) {
      sum = Rows::add_part(args.rows[k], args.n, i, count, set1(args.weights[k]), sum);
    }
    Finish::part(args, i, count, sum);
  });
}

template <typename Rows>
inline void reduce_rows(const ReduceArgs& args) {
  const bool has_shared = args.shared != nullptr;
  if constexpr (requires(F32x16* sums) { Rows::store_rounded(args.sum, sums); }) {
    if (args.x == nullptr && !has_shared && Rows::round_alike(args)) {
      return reduce_rows<Rows, FinishAlike>(args);
    }
  }
  if (args.x != nullptr) {
    has_shared ? reduce_rows<Rows, Finish<true, true>>(args)
               : reduce_rows<Rows, Finish<true, false>>(args);
  } else {
    has_shared ? reduce_rows<Rows, Finish<false, true>>(args)
               : reduce_rows<Rows, Finish<false, false>>(args);
  }
}

void reduce_experts(const ReduceArgs& args) {
  switch (args.format) {
    case RowFormat::kF32:
      return reduce_rows<SumOfF32>(args);
    case RowFormat::kBf16:
      return reduce_rows<SumOfBf16>(args);
    case RowFormat::kFp8:
      return reduce_rows<SumOfFp8>(args);
    case RowFormat::kNvfp4:
      return reduce_rows<SumOfNvfp4<E2m1Lines>>(args);
  }
}
