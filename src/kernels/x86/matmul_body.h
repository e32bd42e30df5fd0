// SPDX-License-Identifier: Apache-2.0
//
// matmul.h, written once over F32x16. Included inside a region.
//
// A piece of work is up to kMaxPanels panels of weights, kMaxMatmulRows rows of x and all of k,
// block by block. What the blocks add up to is gathered in Sums, on the stack, and leaves through
// an epilogue. Within a block, tiles of rows × panels keep their sums in registers.
#pragma once

inline constexpr int kMaxPanels = 4;

// Of one piece of work.
struct Sums {
  alignas(64) float values[kMaxMatmulRows][kMaxPanels][kPanelWidth];
};

// The panels of a piece, and those that the next piece will read (for prefetching).
struct Piece {
  const PackedMatrix* w[kMaxPanels];
  const std::byte* panels[kMaxPanels];
  const std::byte* next_panels[kMaxPanels];
  MatmulChoice choice;
};

// A block of k as the tiles read it.
struct Block {
  int k0 = 0;
  int count = 0;  // of k
  int index = 0;  // of grouped formats: the group
  const void* weights[kMaxPanels];
  const float* scales[kMaxPanels];  // [16], of formats whose groups have scales
  const std::byte* next[kMaxPanels];
};

// ---- steps: what the columns of one panel gain from kStep values of k ----

struct StepF32 {
  using X = float;
  using W = float;
  using Acc = F32x16;
  static constexpr int kStep = 1;
  static Acc step(const X* x, const W* w, Acc acc) { return fma(set1(*x), load(w), acc); }
  static Acc last(const X* x, int, const W* w, Acc acc) { return step(x, w, acc); }
};

struct StepBf16 {
  using X = Bf16;
  using W = Bf16;
  using Acc = F32x16;
  static constexpr int kStep = 2;
  static Acc step(const X* x, const W* w, Acc acc) { return multiply_pair(x, w, acc); }
  // Where x ends after an odd number of values; the weight's partner is zero.
  static Acc last(const X* x, int, const W* w, Acc acc) {
    const Bf16 pair[2] = {x[0], Bf16()};
    return multiply_pair(pair, w, acc);
  }
};

// Quantised rows are padded to whole groups: there is no last step.
struct StepInt8 {
  using X = int8_t;
  using W = uint8_t;
  using Acc = I32x16;
  static constexpr int kStep = 4;
  static Acc step(const X* x, const W* w, Acc acc) { return multiply_four(x, w, acc); }
  static Acc last(const X*, int, const W*, Acc acc) { return acc; }
};

// ---- folds: how a tile's sums begin and how they join those of earlier blocks ----

// One chain over all of k: what is gathered goes on where the last block ended.
template <typename StepT>
struct FoldChain {
  using Step = StepT;
  FoldChain(const InputRows&, const Piece&) {}
  template <int Panels>
  static void begin(const Block&, int, const F32x16* sums, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = sums[p];
  }
  template <int Panels>
  static void end(const Block&, int, const F32x16* acc, F32x16* sums) {
    for (int p = 0; p < Panels; ++p) sums[p] = acc[p];
  }
};

// Each group from zero, then scaled (fp8).
struct FoldScaled {
  using Step = StepBf16;
  FoldScaled(const InputRows&, const Piece&) {}
  template <int Panels>
  static void begin(const Block&, int, const F32x16*, F32x16* acc) {
    for (int p = 0; p < Panels; ++p) acc[p] = zero();
  }
  template <int Panels>
  static void end(const Block& block, int, const F32x16* acc, F32x16* sums) {
    for (int p = 0; p < Panels; ++p) sums[p] = fma(load(block.scales[p]), acc[p], sums[p]);
  }
};

// Integers within a group, with the offset that weights are stored with taken back.
struct FoldInteger {
  using Step = StepInt8;
  FoldInteger(const InputRows& rows, const Piece& piece)
      : x(rows), offset(piece.w[0]->shape.format == WeightFormat::kInt8 ? 128 : 8) {
    const QuantizedRowShape shape{piece.w[0]->k(), piece.w[0]->shape.group};
    scales_offset = shape.scales_offset();
    sums_offset = shape.sums_offset();
  }
  template <int Panels>
  void begin(const Block& block, int row, const F32x16*, I32x16* acc) const {
    const I32x16 first = set1_i32(-offset * field<int32_t>(row, sums_offset, block.index));
    for (int p = 0; p < Panels; ++p) acc[p] = first;
  }
  template <int Panels>
  void end(const Block& block, int row, const I32x16* acc, F32x16* sums) const {
    const F32x16 x_scale = set1(field<float>(row, scales_offset, block.index));
    for (int p = 0; p < Panels; ++p) {
      sums[p] = fma(to_f32(acc[p]), mul(load(block.scales[p]), x_scale), sums[p]);
    }
  }
  template <typename T>
  T field(int row, size_t offset_bytes, int group) const {
    T value;
    const auto* at = static_cast<const std::byte*>(x[row]) + offset_bytes;
    std::memcpy(&value, at + static_cast<size_t>(group) * sizeof(T), sizeof(T));
    return value;
  }
  const InputRows& x;
  int offset;
  size_t scales_offset, sums_offset;
};

// ---- tiles: Rows × Panels accumulators in registers, k innermost and ascending ----

// A block's part of a tile. xs: the tile's rows, at the block's first k.
// Fetch: lines of the next block are asked for meanwhile. Where a block has several tiles, only the
// first of them waits for memory; without this it would wait longer than the processor can look
// ahead, and the others would leave the memory idle.
template <typename Step, int Rows, int Panels, bool Fetch>
inline __attribute__((always_inline)) void run_tile(const typename Step::X* const* xs,
                                                    const Block& block,
                                                    const std::byte* const* fetch,
                                                    typename Step::Acc (&edge)[Rows][Panels]) {
  using W = typename Step::W;
  const W* ws[Panels];
  for (int p = 0; p < Panels; ++p) ws[p] = static_cast<const W*>(block.weights[p]);
  // These copies are loops short enough to be unrolled, which keeps acc in registers; those of the
  // caller may not be.
  typename Step::Acc acc[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) acc[r][p] = edge[r][p];
  }
  const int whole = block.count / Step::kStep * Step::kStep;
  int k = 0;
  if constexpr (Rows <= 2) {
    constexpr int kRound = 8 * Step::kStep;
    for (; k + kRound <= whole; k += kRound) {
      for (int i = 0; i < kRound; i += Step::kStep) {
        for (int p = 0; p < Panels; ++p) {
          const W* w = ws[p] + static_cast<size_t>(k + i) * kPanelWidth;
          for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k + i, w, acc[r][p]);
        }
      }
    }
  }
  for (; k < whole; k += Step::kStep) {
    for (int p = 0; p < Panels; ++p) {
      const size_t at = static_cast<size_t>(k) * kPanelWidth;
      if constexpr (Fetch) __builtin_prefetch(fetch[p] + at * sizeof(W));
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k, ws[p] + at, acc[r][p]);
    }
  }
  if (whole < block.count) {
    for (int p = 0; p < Panels; ++p) {
      const W* w = ws[p] + static_cast<size_t>(whole) * kPanelWidth;
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = Step::last(xs[r] + whole, block.count - whole, w, acc[r][p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) edge[r][p] = acc[r][p];
  }
}

// One of several tiles of a block, whose sums lie in memory between blocks.
template <typename Fold, int Rows, int Panels, bool Fetch>
inline void tile(const InputRows& x, const Fold& fold, const Block& block, int row,
                 const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  using Step = typename Fold::Step;
  const typename Step::X* xs[Rows];
  typename Step::Acc edge[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    xs[r] = static_cast<const typename Step::X*>(x[row + r]) + block.k0;
    F32x16 before[Panels];
    for (int p = 0; p < Panels; ++p) before[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template begin<Panels>(block, row + r, before, edge[r]);
  }
  run_tile<Step, Rows, Panels, Fetch>(xs, block, fetch, edge);
  for (int r = 0; r < Rows; ++r) {
    F32x16 sum[Panels];
    for (int p = 0; p < Panels; ++p) sum[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template end<Panels>(block, row + r, edge[r], sum);
    for (int p = 0; p < Panels; ++p) store(sums[r][p], sum[p]);
  }
}

template <typename Fold, int Rows, int Panels>
inline void tile_or_fetching_tile(const InputRows& x, const Fold& fold, const Block& block, int row,
                                  const std::byte* const* fetch,
                                  float (*sums)[kMaxPanels][kPanelWidth]) {
  if (Panels == kTilePanels && Rows > 2) {
    tile<Fold, Rows, Panels, true>(x, fold, block, row, fetch, sums);
  } else {
    tile<Fold, Rows, Panels, false>(x, fold, block, row, fetch, sums);
  }
}

template <typename Fold, int Panels>
inline void tile_of(int height, const InputRows& x, const Fold& fold, const Block& block, int row,
                    const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  switch (height) {
    case 1:
      return tile_or_fetching_tile<Fold, 1, Panels>(x, fold, block, row, fetch, sums);
    case 2:
      return tile_or_fetching_tile<Fold, 2, Panels>(x, fold, block, row, fetch, sums);
    case 3:
      return tile_or_fetching_tile<Fold, 3, Panels>(x, fold, block, row, fetch, sums);
  }
  if constexpr (kTileRows > 3) {
    switch (height) {
      case 4:
        return tile_or_fetching_tile<Fold, 4, Panels>(x, fold, block, row, fetch, sums);
      case 5:
        return tile_or_fetching_tile<Fold, 5, Panels>(x, fold, block, row, fetch, sums);
      case 6:
        return tile_or_fetching_tile<Fold, 6, Panels>(x, fold, block, row, fetch, sums);
    }
  }
}

// The rows of a piece in tiles of nearly equal height. Each tile fetches its part of the next
// block.
template <typename Fold, int Panels>
inline void tiles(const InputRows& x, const Fold& fold, const Block& block, int first_row,
                  int num_rows, const MatmulChoice& choice, Sums& sums) {
  const int num_tiles = (num_rows + choice.tile_rows - 1) / choice.tile_rows;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    const std::byte* fetch[Panels];
    for (int p = 0; p < Panels; ++p) {
      const bool mine = p % num_tiles == i;
      fetch[p] = mine ? block.next[p] : static_cast<const std::byte*>(block.weights[p]);
    }
    tile_of<Fold, Panels>(height, x, fold, block, first_row + row, fetch, sums.values + row);
    row += height;
  }
}

// ---- blocks ----

// f32 and bf16 are read where they lie.
template <typename Fold, int Panels>
inline void plain_blocks(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                         Sums& sums) {
  const Fold fold(x, piece);
  const int k = piece.w[0]->k();
  constexpr size_t kBytesPerK = kPanelWidth * sizeof(typename Fold::Step::W);
  Block block;
  for (block.k0 = 0; block.k0 < k; block.k0 += block.count) {
    block.count = std::min(piece.choice.block_k, k - block.k0);
    const int after = block.k0 + block.count;
    for (int p = 0; p < Panels; ++p) {
      block.weights[p] = piece.panels[p] + static_cast<size_t>(block.k0) * kBytesPerK;
      block.next[p] = after < k ? piece.panels[p] + static_cast<size_t>(after) * kBytesPerK
                                : piece.next_panels[p];
    }
    tiles<Fold, Panels>(x, fold, block, first_row, num_rows, piece.choice, sums);
  }
}

// The blocks of the other formats, made into bf16 or bytes by a decoder.
template <typename Decoder, int Panels>
class CodedBlocks {
 public:
  explicit CodedBlocks(const Piece& piece)
      : piece_(piece),
        shape_(piece.w[0]->shape),
        size_(shape_.num_blocks()),
        count_(shape_.block_k()),
        is_integer_(takes_quantized_rows(shape_.format)),
        bytes_(shape_.block_bytes()) {}

  int size() const { return size_; }

  inline __attribute__((always_inline)) Block get(int index) {
    Block block;
    block.index = index;
    block.k0 = index * count_;
    // Quantised rows are padded to whole groups, rows of bf16 are not.
    block.count = is_integer_ ? count_ : std::min(count_, shape_.k - block.k0);
    for (int p = 0; p < Panels; ++p) {
      const std::byte* at = piece_.panels[p] + static_cast<size_t>(index) * bytes_;
      block.scales[p] = reinterpret_cast<const float*>(at + bytes_ - kScaleBytes);
      block.weights[p] = decoder_.decode(at, shape_, p);
      block.next[p] = index + 1 == size_ ? piece_.next_panels[p] : at + bytes_;
    }
    return block;
  }

 private:
  const Piece& piece_;
  PackedShape shape_;
  int size_;
  int count_;
  bool is_integer_;
  size_t bytes_;
  Decoder decoder_;
};

// All blocks for rows that make one tile: their sums stay in registers. (Sums that go through
// memory after each block keep the processor from looking ahead to the next one's weights, which is
// all that counts for few rows: 65 instead of 100 % of what memory gives.)
template <typename Fold, typename Decoder, int Rows, int Panels>
inline void one_tile(const InputRows& x, const Piece& piece, int row, Sums& sums) {
  using Step = typename Fold::Step;
  const Fold fold(x, piece);
  CodedBlocks<Decoder, Panels> blocks(piece);
  F32x16 sum[Rows][Panels];
  for (auto& of_row : sum) {
    for (F32x16& s : of_row) s = zero();
  }
  for (int index = 0; index < blocks.size(); ++index) {
    const Block block = blocks.get(index);
    const typename Step::X* xs[Rows];
    typename Step::Acc edge[Rows][Panels];
    for (int r = 0; r < Rows; ++r) {
      xs[r] = static_cast<const typename Step::X*>(x[row + r]) + block.k0;
      fold.template begin<Panels>(block, row + r, sum[r], edge[r]);
    }
    run_tile<Step, Rows, Panels, false>(xs, block, nullptr, edge);
    for (int r = 0; r < Rows; ++r) fold.template end<Panels>(block, row + r, edge[r], sum[r]);
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) store(sums.values[r][p], sum[r][p]);
  }
}

template <typename Fold, typename Decoder, int Panels>
inline void coded_blocks(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                         Sums& sums) {
  if (num_rows == 1) return one_tile<Fold, Decoder, 1, Panels>(x, piece, first_row, sums);
  if (num_rows == 2) return one_tile<Fold, Decoder, 2, Panels>(x, piece, first_row, sums);
  const Fold fold(x, piece);
  CodedBlocks<Decoder, Panels> blocks(piece);
  for (int index = 0; index < blocks.size(); ++index) {
    tiles<Fold, Panels>(x, fold, blocks.get(index), first_row, num_rows, piece.choice, sums);
  }
}

#include "kernels/x86/decode_body.h"

template <int Panels>
inline void multiply(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                     Sums& sums) {
  switch (piece.w[0]->shape.format) {
    case WeightFormat::kF32:
      return plain_blocks<FoldChain<StepF32>, Panels>(x, piece, first_row, num_rows, sums);
    case WeightFormat::kBf16:
      return plain_blocks<FoldChain<StepBf16>, Panels>(x, piece, first_row, num_rows, sums);
    case WeightFormat::kInt8:
      return coded_blocks<FoldInteger, NoDecoder, Panels>(x, piece, first_row, num_rows, sums);
    case WeightFormat::kInt4:
      return coded_blocks<FoldInteger, Int4Decoder, Panels>(x, piece, first_row, num_rows, sums);
    case WeightFormat::kFp8:
      return coded_blocks<FoldScaled, Fp8Decoder, Panels>(x, piece, first_row, num_rows, sums);
    case WeightFormat::kMxfp4:
      return coded_blocks<FoldChain<StepBf16>, Mxfp4Decoder, Panels>(x, piece, first_row, num_rows,
                                                                     sums);
    case WeightFormat::kNvfp4:
      return coded_blocks<FoldChain<StepBf16>, Nvfp4Decoder, Panels>(x, piece, first_row, num_rows,
                                                                     sums);
  }
}

// ---- epilogues ----

inline void store_bf16_n(Bf16* p, F32x16 v, int n) {
  float buffer[kPanelWidth];
  store(buffer, v);
  for (int i = 0; i < n; ++i) p[i] = Bf16(buffer[i]);
}

inline void store_columns(const OutputRows& y, int row, int column, int n, F32x16 v) {
  const int count = std::min(kPanelWidth, n - column);
  if (y.dtype == Dtype::kF32) {
    store_n(static_cast<float*>(y[row]) + column, v, count);
  } else if (count == kPanelWidth) {
    store_bf16(static_cast<Bf16*>(y[row]) + column, v);
  } else {
    store_bf16_n(static_cast<Bf16*>(y[row]) + column, v, count);
  }
}

inline F32x16 silu(F32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// ---- products ----

// w's panels [panel, panel + Panels) for all rows.
template <int Panels>
inline void matmul_panels(const MatmulArgs& args, const MatmulChoice& choice, int panel) {
  Piece piece{.choice = choice};
  for (int p = 0; p < Panels; ++p) {
    piece.w[p] = &args.w;
    piece.panels[p] = args.w.panel(panel + p);
    const int next = std::min(panel + Panels + p, args.w.shape.num_panels() - 1);
    piece.next_panels[p] = args.w.panel(next);
  }
  const F32x16 scale = set1(args.w.scale);
  Sums sums;
  for (int row = 0; row < args.m; row += choice.rows) {
    const int count = std::min(choice.rows, args.m - row);
    multiply<Panels>(args.x, piece, row, count, sums);
    for (int r = 0; r < count; ++r) {
      for (int p = 0; p < Panels; ++p) {
        store_columns(args.y, row + r, (panel + p) * kPanelWidth, args.w.n(),
                      mul(scale, load(sums.values[r][p])));
      }
    }
  }
}

void matmul(const MatmulArgs& args) {
  const MatmulChoice choice = choose_matmul(args.m, args.w.shape, kTileRows, kTilePanels);
  int panel = args.first_panel;
  for (; panel + kTilePanels <= args.last_panel; panel += kTilePanels) {
    matmul_panels<kTilePanels>(args, choice, panel);
  }
  for (; panel < args.last_panel; ++panel) matmul_panels<1>(args, choice, panel);
}

// Columns of Panels / 2 panels of gate and of up.
template <int Panels>
inline void gated_panels(const GatedMatmulArgs& args, const MatmulChoice& choice, int panel) {
  constexpr int kHalf = Panels / 2;
  Piece piece{.choice = choice};
  for (int p = 0; p < Panels; ++p) {
    const PackedMatrix& w = p < kHalf ? args.gate : args.up;
    piece.w[p] = &w;
    piece.panels[p] = w.panel(panel + p % kHalf);
    piece.next_panels[p] = w.panel(std::min(panel + kHalf + p % kHalf, w.shape.num_panels() - 1));
  }
  const F32x16 gate_scale = set1(args.gate.scale), up_scale = set1(args.up.scale);
  Sums sums;
  for (int row = 0; row < args.m; row += choice.rows) {
    const int count = std::min(choice.rows, args.m - row);
    multiply<Panels>(args.x, piece, row, count, sums);
    for (int r = 0; r < count; ++r) {
      for (int p = 0; p < kHalf; ++p) {
        const F32x16 gate = mul(gate_scale, load(sums.values[r][p]));
        const F32x16 up = mul(up_scale, load(sums.values[r][p + kHalf]));
        store_columns(args.h, row + r, (panel + p) * kPanelWidth, args.gate.n(),
                      mul(silu(gate), up));
      }
    }
  }
}

void gated_matmul(const GatedMatmulArgs& args) {
  const MatmulChoice choice = choose_matmul(args.m, args.gate.shape, kTileRows, kTilePanels);
  constexpr int kHalf = kTilePanels / 2;
  int panel = args.first_panel;
  for (; panel + kHalf <= args.last_panel; panel += kHalf) {
    gated_panels<kTilePanels>(args, choice, panel);
  }
  for (; panel < args.last_panel; ++panel) gated_panels<2>(args, choice, panel);
}

// ---- quantised rows ----

template <typename T>
inline void quantize_row_of(const T* x, const QuantizedRowShape& shape, std::byte* out) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  for (int group = 0; group < shape.num_groups(); ++group) {
    const int k0 = group * shape.group, count = std::min(shape.group, shape.k - k0);
    F32x16 largest = zero();
    for_each_vector(count,
                    [&](int i, int n) { largest = max(largest, abs(load_n(x + k0 + i, n))); });
    const float scale = reduce_max(largest) / 127.0f;
    const F32x16 inverse = set1(scale > 0.0f ? 1.0f / scale : 0.0f);
    I32x16 sum = set1_i32(0);
    for_each_vector(shape.group, [&](int i, int) {
      const int n = std::clamp(count - i, 0, kPanelWidth);
      const I32x16 code = to_i32(mul(n > 0 ? load_n(x + k0 + i, n) : zero(), inverse));
      sum = add(sum, code);
      store_i8(codes + k0 + i, code);
    });
    const int32_t total = reduce_add(sum);
    std::memcpy(out + shape.scales_offset() + static_cast<size_t>(group) * sizeof(float), &scale,
                sizeof(scale));
    std::memcpy(out + shape.sums_offset() + static_cast<size_t>(group) * sizeof(total), &total,
                sizeof(total));
  }
}

void quantize_row(Dtype x_dtype, const void* x, const QuantizedRowShape& shape, std::byte* out) {
  if (x_dtype == Dtype::kF32) {
    quantize_row_of(static_cast<const float*>(x), shape, out);
  } else {
    quantize_row_of(static_cast<const Bf16*>(x), shape, out);
  }
}
