// SPDX-License-Identifier: Apache-2.0
//
// matmul.h in F32x16, for every instruction set. Included inside a region.
//
// Few rows are one tile of rows × panels, which goes through the whole matrix. Its sums stay in
// registers, and it expands codes there (body/one_tile.h).
//
// More rows are computed piece by piece. A piece is kTilePanels panels of weights, a run of up to
// kMaxMatmulRows rows of x, and all of k. It goes block by block, in tiles that share each block;
// most formats expand a block's codes once for all tiles (body/tiles.h). Sums are on the stack
// between blocks, and an epilogue stores them.
//
// body/row_tiles.h has the layout of x.
#pragma once

inline constexpr int kMaxPanels = 4;
inline constexpr int kTilePanels = 2;  // of tiles with more than kFewRows

// The prefetch distance in bytes, over all panels that are read together: about what a core reads
// during the latency of memory.
inline constexpr size_t kFetchAhead = 8192;

#include "kernels/body/row_tiles.h"

// The blocking and layout of a product's operands, the same for all its pieces.
struct Cut {
  WeightFormat format;
  MatmulChoice choice;
  int k;
  int block_k;
  int num_blocks;
  int whole_blocks;  // less than num_blocks if the last is not whole; quantised rows are padded
  size_t block_bytes;
  size_t panel_bytes;
  RowWords words;  // of x

  explicit Cut(const PackedShape& w)
      : format(w.format),
        choice(choose_matmul(w, kTileRows, kTilePanels)),
        k(w.k),
        block_k(choice.block_k),
        num_blocks((k + block_k - 1) / block_k),
        whole_blocks(takes_quantized_rows(format) ? num_blocks : k / block_k),
        block_bytes(w.block_bytes() * static_cast<size_t>(block_k) /
                    static_cast<size_t>(w.block_k())),
        panel_bytes(w.panel_bytes()),
        words(w) {
    for (const int panels : {1, 2, 4}) {
      const size_t ahead = kFetchAhead / static_cast<size_t>(panels);
      blocks_ahead_[panels / 2] =
          std::min(num_blocks, static_cast<int>((ahead + block_bytes - 1) / block_bytes));
    }
  }
  // The number of words of a row that steps multiply with.
  template <typename Step>
  int num_words() const {
    const int last = takes_quantized_rows(format) ? num_blocks * block_k : k;
    return (last + Step::kStep - 1) / Step::kStep;
  }
  // The prefetch distance in blocks, if `panels` (1, 2 or 4) panels are read together.
  int blocks_ahead(int panels) const { return blocks_ahead_[panels / 2]; }
  size_t block_at(int index) const { return static_cast<size_t>(index) * block_bytes; }
  size_t scales_at(int index) const { return block_at(index + 1) - kScaleBytes; }
  const std::byte* panel(const PackedMatrix& w, int index) const {
    return w.data + static_cast<size_t>(index - w.first_panel) * panel_bytes;
  }
  // Panel `index` of w or, from `last` on, the panels at `next` that are read then. Without `next`:
  // w's panels after `last`, then its final panel again.
  const std::byte* upcoming_panel(const PackedMatrix& w, const std::byte* next, int last,
                                  int index) const {
    if (index >= last && next != nullptr) {
      return next + static_cast<size_t>(index - last) * panel_bytes;
    }
    return panel(w, std::min(index, w.shape.num_panels() - 1));
  }

 private:
  int blocks_ahead_[3];
};

// The panels of a piece, and those that the next piece will read (for prefetching).
struct Piece {
  const Cut& cut;
  const std::byte* panels[kTilePanels];
  const std::byte* next_panels[kTilePanels];
};

// ---- steps: multiply one word of x by a line of operands: kStep values of k, one panel ----

struct StepF32 {
  using Acc = F32x16;
  static constexpr int kStep = 1;
  static Acc step(const void* x, Line w, Acc acc) { return multiply_one(x, w, acc); }
};

struct StepBf16 {
  using Acc = F32x16;
  static constexpr int kStep = 2;
  static Acc step(const void* x, Line w, Acc acc) { return multiply_pair(x, w, acc); }
};

struct StepInt8 {
  using Acc = I32x16;
  static constexpr int kStep = 4;
  static Acc step(const void* x, Line w, Acc acc) { return multiply_four(x, w, acc); }
};

// For four-bit weights.
struct StepSmall {
  using Acc = I32x16;
  static constexpr int kStep = 4;
  static Acc step(const void* x, Line w, Acc acc) { return multiply_four_small(x, w, acc); }
};

// ---- folds: how a row's sums of a block begin, and how they are added to those of earlier blocks
// ----
//
// begin: initialises the accumulators of a block; end: adds them to the sums. x: the tile, of which
// `row` is a row.

// The location of a block's scales after its codes: 16 per panel.
struct ScaleLines {
  const std::byte* const* panels;
  size_t at;

  F32x16 operator[](int p) const { return load(reinterpret_cast<const float*>(panels[p] + at)); }
};

// These scales in registers.
template <int Panels>
struct Scales {
  F32x16 values[Panels];

  explicit Scales(const ScaleLines& lines) {
    for (int p = 0; p < Panels; ++p) values[p] = lines[p];
  }
  F32x16 operator[](int p) const { return values[p]; }
};
struct NoScalesOfBlocks {};

// One chain over all of k: each block continues the chain of the block before (f32, bf16).
template <typename StepT>
struct FoldChain {
  using Step = StepT;
  using Acc = F32x16;
  static constexpr bool kChains = true;
  explicit FoldChain(const Cut&) {}
  template <int Panels, typename X>
  static void begin(X, int, int, const F32x16* sums, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = sums[p];
  }
  template <int Panels>
  static NoScalesOfBlocks scales(const ScaleLines&) {
    return {};
  }
  template <int Panels, typename X>
  static void end(X, int, int, NoScalesOfBlocks, const F32x16* acc, F32x16* sums) {
    for (int p = 0; p < Panels; ++p) sums[p] = acc[p];
  }
};

// Each group starts from zero; its sum is scaled, then added (fp8).
struct FoldScaled {
  using Step = StepBf16;
  using Acc = F32x16;
  static constexpr bool kChains = false;
  explicit FoldScaled(const Cut&) {}
  template <int Panels, typename X>
  static void begin(X, int, int, const F32x16*, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = zero();
  }
  template <int Panels>
  static Scales<Panels> scales(const ScaleLines& lines) {
    return Scales<Panels>(lines);
  }
  template <int Panels, typename X>
  static void end(X, int, int, const Scales<Panels>& scales, const F32x16* acc, F32x16* sums) {
    for (int p = 0; p < Panels; ++p) sums[p] = fma(scales[p], acc[p], sums[p]);
  }
};

// Integer sums within a group (int8, int4). They start from −offset × (sum of x's codes), since the
// weights are stored with an offset.
template <typename StepT>
struct FoldInteger {
  using Step = StepT;
  using Acc = I32x16;
  static constexpr bool kChains = false;
  explicit FoldInteger(const Cut& cut) : scales_at(cut.words.scales), sums_at(cut.words.sums) {}
  template <int Panels, typename X>
  void begin(X x, int row, int group, const F32x16*, I32x16* acc) const {
    const I32x16 first = set1_i32(x.template value<int32_t>(sums_at + group, row));
    for (int p = 0; p < Panels; ++p) acc[p] = first;
  }
  template <int Panels>
  static Scales<Panels> scales(const ScaleLines& lines) {
    return Scales<Panels>(lines);
  }
  template <int Panels, typename X>
  void end(X x, int row, int group, const Scales<Panels>& scales, const I32x16* acc,
           F32x16* sums) const {
    const F32x16 x_scale = set1(x.template value<float>(scales_at + group, row));
    for (int p = 0; p < Panels; ++p) {
      sums[p] = fma(to_f32(acc[p]), mul(scales[p], x_scale), sums[p]);
    }
  }
  int scales_at, sums_at;  // words
};

// Integer sums within a group, with several groups per block (mxfp4, nvfp4): each group's sum is
// scaled and added to the block's sum, which is then multiplied by x's scale.
struct FoldGroups {
  using Step = StepSmall;
  using Acc = F32x16;
  static constexpr bool kChains = false;
  explicit FoldGroups(const Cut& cut) : scales_at(cut.words.scales), sums_at(cut.words.sums) {}
  template <int Panels, typename X>
  static void begin(X, int, int, const F32x16*, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = zero();
  }
  // group: index over all of k.
  template <int Panels, typename X>
  void begin_group(X x, int row, int group, I32x16* codes) const {
    const I32x16 first = set1_i32(x.template value<int32_t>(sums_at + group, row));
    for (int p = 0; p < Panels; ++p) codes[p] = first;
  }
  template <int Panels>
  static void end_group(const F32x16* scales, const I32x16* codes, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = fma(to_f32(codes[p]), scales[p], acc[p]);
  }
  template <int Panels>
  static NoScalesOfBlocks scales(const ScaleLines&) {
    return {};
  }
  template <int Panels, typename X>
  void end(X x, int row, int index, NoScalesOfBlocks, const F32x16* acc, F32x16* sums) const {
    const F32x16 x_scale = set1(x.template value<float>(scales_at + index, row));
    for (int p = 0; p < Panels; ++p) sums[p] = fma(acc[p], x_scale, sums[p]);
  }
  int scales_at, sums_at;  // words
};

#include "kernels/body/decode.h"

// Integer sums within a group, of codes without an offset. The group's half floats are a scale and
// a minimum, which is multiplied with the sum of x's codes (int4h, int8h).
template <typename StepT>
struct FoldHalves {
  using Step = StepT;
  using Acc = I32x16;
  static constexpr bool kChains = false;
  explicit FoldHalves(const Cut& cut) : scales_at(cut.words.scales), sums_at(cut.words.sums) {}
  template <int Panels, typename X>
  static void begin(X, int, int, const F32x16*, I32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = set1_i32(0);
  }
  template <int Panels>
  struct ScalesAndMinimums {
    F32x16 scales[Panels], minimums[Panels];
  };
  template <int Panels>
  static ScalesAndMinimums<Panels> scales(const ScaleLines& lines) {
    ScalesAndMinimums<Panels> both;
    for (int p = 0; p < Panels; ++p) {
      const std::byte* halves = lines.panels[p] + lines.at;
      both.scales[p] = load_halves(halves);
      both.minimums[p] = load_halves(halves + kScaleBytes / 2);
    }
    return both;
  }
  template <int Panels, typename X>
  void end(X x, int row, int group, const ScalesAndMinimums<Panels>& of_w, const I32x16* acc,
           F32x16* sums) const {
    const F32x16 x_scale = set1(x.template value<float>(scales_at + group, row));
    const F32x16 x_sum = to_f32(set1_i32(x.template value<int32_t>(sums_at + group, row)));
    for (int p = 0; p < Panels; ++p) {
      const F32x16 scaled = fma(to_f32(acc[p]), of_w.scales[p], mul(of_w.minimums[p], x_sum));
      sums[p] = fma(scaled, x_scale, sums[p]);
    }
  }
  int scales_at, sums_at;  // words
};

// As FoldGroups, for codes without an offset and groups with a minimum (int4m, int8m): a block ends
// with the products of minimums and sums of x's codes.
template <typename StepT, int kGroups>
struct FoldTwoLevels {
  using Step = StepT;
  using Acc = F32x16;
  static constexpr bool kChains = false;
  explicit FoldTwoLevels(const Cut& cut)
      : scales_at(cut.words.scales),
        sums_at(cut.words.sums),
        minimums_before(cut.block_bytes - kScaleBytes - size_t{kGroups} * kPanelWidth) {}
  template <int Panels, typename X>
  static void begin(X, int, int, const F32x16*, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = zero();
  }
  template <int Panels, typename X>
  static void begin_group(X, int, int, I32x16* codes) {
    for (int p = 0; p < Panels; ++p) codes[p] = set1_i32(0);
  }
  template <int Panels>
  static void end_group(const F32x16* scales, const I32x16* codes, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = fma(to_f32(codes[p]), scales[p], acc[p]);
  }
  // The last line of a block is d, the line before it dmin.
  template <int Panels>
  static ScaleLines scales(const ScaleLines& lines) {
    return lines;
  }
  template <int Panels, typename X>
  void end(X x, int row, int index, const ScaleLines& lines, const F32x16* acc,
           F32x16* sums) const {
    const float scale = x.template value<float>(scales_at + index, row);
    F32x16 lows[Panels];
    for (int p = 0; p < Panels; ++p) lows[p] = zero();
    for (int i = 0; i < kGroups; ++i) {
      const F32x16 of_x =
          to_f32(set1_i32(x.template value<int32_t>(sums_at + index * kGroups + i, row)));
      for (int p = 0; p < Panels; ++p) {
        const std::byte* minimums =
            lines.panels[p] + lines.at - minimums_before + static_cast<size_t>(i) * kPanelWidth;
        lows[p] = fma(floats_of_codes(minimums), of_x, lows[p]);
      }
    }
    const ScaleLines dmin = {lines.panels, lines.at - kScaleBytes};
    for (int p = 0; p < Panels; ++p) {
      sums[p] = fma(acc[p], mul(lines[p], set1(scale)), sums[p]);
      sums[p] = fma(lows[p], mul(dmin[p], set1(-scale)), sums[p]);
    }
  }
  int scales_at, sums_at;  // words
  size_t minimums_before;  // bytes from the minimums to the last line
};

//
#include "kernels/body/one_tile.h"
#include "kernels/body/tiles.h"

// Calls with<Fold, Codes>() with the types of a format of two levels.
template <typename Step, typename Codes, typename With>
inline auto with_two_levels(const PackedShape& w, const With& with) {
  if (w.group == 16) {
    return with.template operator()<FoldTwoLevels<Step, 16>, TwoLevelCodes<Codes, 16>>();
  }
  return with.template operator()<FoldTwoLevels<Step, 8>, TwoLevelCodes<Codes, 32>>();
}

// Calls with<Fold, Codes>() with the types of the format.
template <typename With>
inline auto with_format(const PackedShape& w, const With& with) {
  switch (w.format) {
    case WeightFormat::kF32:
      return with.template operator()<FoldChain<StepF32>, PlainCodes>();
    case WeightFormat::kBf16:
      return with.template operator()<FoldChain<StepBf16>, PlainCodes>();
    case WeightFormat::kInt8:
      return with.template operator()<FoldInteger<StepInt8>, PlainCodes>();
    case WeightFormat::kInt4:
      return with.template operator()<FoldInteger<StepSmall>, Int4Codes>();
    case WeightFormat::kFp8:
      return with.template operator()<FoldScaled, Fp8Codes>();
    case WeightFormat::kMxfp4:
      return with.template operator()<FoldGroups, Mxfp4Codes>();
    case WeightFormat::kInt4h:
      return with.template operator()<FoldHalves<StepSmall>, Int4Codes>();
    case WeightFormat::kInt8h:
      return with.template operator()<FoldHalves<StepInt8>, PlainCodes>();
    case WeightFormat::kInt4m:
      return with_two_levels<StepSmall, Int4Codes>(w, with);
    case WeightFormat::kInt8m:
      return with_two_levels<StepInt8, PlainCodes>(w, with);
    case WeightFormat::kNvfp4:
      break;
  }
  return with.template operator()<FoldGroups, Nvfp4Codes>();
}

// ---- epilogues ----

inline void store_bf16_n(Bf16* p, F32x16 v, int n) {
  float buffer[kPanelWidth];
  store(buffer, v);
  for (int i = 0; i < n; ++i) p[i] = Bf16(buffer[i]);
}

// Stores up to 16 columns of a row with n columns.
inline void store_columns(void* row, Dtype dtype, int column, int n, F32x16 v) {
  const int count = std::min(kPanelWidth, n - column);
  if (dtype == Dtype::kF32) {
    store_n(static_cast<float*>(row) + column, v, count);
  } else if (count == kPanelWidth) {
    store_bf16(static_cast<Bf16*>(row) + column, v);
  } else {
    store_bf16_n(static_cast<Bf16*>(row) + column, v, count);
  }
}

// A scaled sum plus the bias of up to 16 columns of n, if there is one.
inline F32x16 with_bias(F32x16 scaled, const float* bias, int column, int n) {
  if (bias == nullptr) return scaled;
  return add(scaled, load_n(bias + column, std::min(kPanelWidth, n - column)));
}

// ½ x (1 + tanh u) = x / (1 + e⁻²ᵘ) with u = √(2/π) (x + 0.044715 x³): one division, no tanh.
inline F32x16 gelu_tanh(F32x16 x) {
  const F32x16 factor = fma(mul(x, x), set1(-kGeluCubic), set1(-kGeluLinear));
  return div(x, add(set1(1.0f), exp(mul(x, factor))));
}

inline F32x16 activate(const Activation& activation, F32x16 gate, F32x16 up) {
  if (activation.kind == Activation::Kind::kSilu) return mul(silu(gate), up);
  if (activation.kind == Activation::Kind::kGeluTanh) return mul(gelu_tanh(gate), up);
  // min and max return their second operand if one is NaN.
  const F32x16 limit = set1(activation.limit), one = set1(1.0f);
  up = max(set1(-activation.limit), min(limit, up));
  if (activation.kind == Activation::Kind::kLimitedSilu) return mul(min(limit, silu(gate)), up);
  gate = min(limit, gate);
  if (activation.kind == Activation::Kind::kClampedSilu) return mul(silu(gate), up);
  const F32x16 e = exp(mul(set1(-activation.alpha), gate));
  return mul(add(up, one), div(gate, add(one, e)));
}

// ---- products ----

// See body/one_tile.h.
struct PlainProduct {
  static constexpr int kMatrices = 1;
  const MatmulArgs& args;

  int num_rows() const { return args.m; }
  const InputRows& x() const { return args.x; }
  int first() const { return args.first_panel; }
  int last() const { return args.last_panel; }
  const std::byte* panel(const Cut& cut, int, int index) const { return cut.panel(args.w, index); }
  const std::byte* upcoming_panel(const Cut& cut, int, int index) const {
    return cut.upcoming_panel(args.w, args.next, args.last_panel, index);
  }
  template <int kPanels>
  void put(int row, int panel, const float (*sums)[kPanelWidth]) const {
    void* const y = args.y[row];
    const F32x16 scale = set1(args.w.scale);
    const int n = args.w.n();
    for (int p = 0; p < kPanels; ++p) {
      const int column = (panel + p) * kPanelWidth;
      store_columns(y, args.y.dtype, column, n,
                    with_bias(mul(scale, load(sums[p])), args.bias, column, n));
    }
  }
};

// The gated product: matrix 0 is gate, matrix 1 is up.
struct GatedProduct {
  static constexpr int kMatrices = 2;
  const GatedMatmulArgs& args;

  int num_rows() const { return args.m; }
  const InputRows& x() const { return args.x; }
  int first() const { return args.first_panel; }
  int last() const { return args.last_panel; }
  const std::byte* panel(const Cut& cut, int matrix, int index) const {
    return cut.panel(matrix == 0 ? args.gate : args.up, index);
  }
  const std::byte* upcoming_panel(const Cut& cut, int matrix, int index) const {
    return matrix == 0 ? cut.upcoming_panel(args.gate, args.next_gate, args.last_panel, index)
                       : cut.upcoming_panel(args.up, args.next_up, args.last_panel, index);
  }
  template <int kPanels>
  void put(int row, int panel, const float (*sums)[kPanelWidth]) const {
    constexpr int kHalf = kPanels / 2;
    void* const h = args.h[row];
    const F32x16 gate_scale = set1(args.gate.scale), up_scale = set1(args.up.scale);
    const int n = args.gate.n();
    for (int p = 0; p < kHalf; ++p) {
      const int column = (panel + p) * kPanelWidth;
      const F32x16 gate = with_bias(mul(gate_scale, load(sums[p])), args.gate_bias, column, n);
      const F32x16 up = with_bias(mul(up_scale, load(sums[p + kHalf])), args.up_bias, column, n);
      store_columns(h, args.h.dtype, column, n, activate(args.activation, gate, up));
    }
  }
};

// Computes kEach panels of each matrix from `panel` on, for a run of rows that starts at `row`.
template <typename Fold, typename Codes, typename Tuned, int kEach, typename Product>
inline void multiply_panels(const Product& product, const Cut& cut, const RowTiles& x, int row,
                            int panel, bool last_run) {
  constexpr int kPanels = kEach * Product::kMatrices;
  Piece piece{.cut = cut};
  for (int q = 0; q < Product::kMatrices; ++q) {
    for (int p = 0; p < kEach; ++p) {
      piece.panels[q * kEach + p] = product.panel(cut, q, panel + p);
      const int next = panel + kEach + p, beyond = next - product.last();
      // The next run begins with the same panels.
      piece.next_panels[q * kEach + p] =
          last_run || beyond < 0
              ? product.upcoming_panel(cut, q, next)
              : product.panel(cut, q, std::min(product.first() + beyond, product.last() - 1));
    }
  }
  Sums sums;
  all_tiles<Fold, Codes, Tuned, kPanels>(x, piece, sums);
  for (int r = 0; r < x.tiles.num_rows(); ++r) {
    product.template put<kPanels>(row + r, panel, sums.values[r]);
  }
}

// Splits the rows into runs of nearly equal size. Each run packs its rows once and goes through all
// panels. A run has enough rows that computing takes longer than reading the weights again.
template <typename Fold, typename Codes, typename Tuned, typename Product>
inline void multiply_runs(const Product& product, const Cut& cut) {
  constexpr int kEach = kTilePanels / Product::kMatrices;
  const int m = product.num_rows();
  for (int row = 0, runs = (m + cut.choice.rows - 1) / cut.choice.rows; runs > 0; --runs) {
    const Tiles tiles((m - row + runs - 1) / runs, kMaxTileRows<Codes>);
    const RowTiles x(product.x(), cut.words, row, tiles);
    int panel = product.first();
    for (; panel + kEach <= product.last(); panel += kEach) {
      multiply_panels<Fold, Codes, Tuned, kEach>(product, cut, x, row, panel, runs == 1);
    }
    if constexpr (kEach > 1) {
      for (; panel < product.last(); ++panel) {
        multiply_panels<Fold, Codes, Tuned, 1>(product, cut, x, row, panel, runs == 1);
      }
    }
    row += tiles.num_rows();
  }
}

template <typename Tuned, typename Product>
inline void multiply_all(const Product& product, const PackedShape& w) {
  const Cut cut(w);
  with_format(w, [&]<typename Fold, typename Codes>() {
    if constexpr (Codes::kGroups > 1) {
      constexpr int kLines = Codes::kGroups * Codes::kLinesOfGroup;
      WIDEEP_CHECK_EQ(cut.block_k, kLines * Codes::kParts * Fold::Step::kStep);
    }
    if (one_tile_of<Fold, Codes, Tuned>(product, cut)) return;
    multiply_runs<Fold, Codes, Tuned>(product, cut);
  });
}

// The products for one tuning; files of an instruction set choose among them.
template <typename Tuned>
inline void matmul_for(const MatmulArgs& args) {
  if (args.m > 0) multiply_all<Tuned>(PlainProduct{args}, args.w.shape);
}

template <typename Tuned>
inline void gated_matmul_for(const GatedMatmulArgs& args) {
  if (args.m > 0) multiply_all<Tuned>(GatedProduct{args}, args.gate.shape);
}
