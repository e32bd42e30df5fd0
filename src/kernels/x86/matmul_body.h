// SPDX-License-Identifier: Apache-2.0
//
// matmul.h, written once over F32x16. Included inside a region.
//
// A piece of work is up to kMaxPanels panels of weights, kMaxMatmulRows rows of x and all of k,
// block by block. What the blocks add up to is gathered in Sums, on the stack, and leaves through
// an epilogue. Few rows are one tile of rows × panels (one_tile_body.h), whose sums stay in
// registers and which expands codes there; more rows are several (tiles_body.h), which share a
// block that was expanded once.
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

// A block of k.
struct Block {
  int k0 = 0;
  int count = 0;  // of k
  int index = 0;  // of grouped formats: the group
  const std::byte* codes[kMaxPanels];
  const float* scales[kMaxPanels];    // [16], of formats whose scales stand behind the codes
  const std::byte* next[kMaxPanels];  // what to fetch meanwhile
  size_t bytes = 0;                   // of each panel
};

// ---- steps: what the columns of one panel gain from a line of operands, kStep values of k ----

struct StepF32 {
  using X = float;
  using Acc = F32x16;
  static constexpr int kStep = 1;
  static Acc step(const X* x, Line w, Acc acc) { return multiply_one(x, w, acc); }
  static Acc last(const X* x, Line w, Acc acc) { return step(x, w, acc); }
};

struct StepBf16 {
  using X = Bf16;
  using Acc = F32x16;
  static constexpr int kStep = 2;
  static Acc step(const X* x, Line w, Acc acc) { return multiply_pair(x, w, acc); }
  // Where x ends after an odd number of values; the weight's partner is zero.
  static Acc last(const X* x, Line w, Acc acc) {
    const Bf16 pair[2] = {x[0], Bf16()};
    return multiply_pair(pair, w, acc);
  }
};

// Quantised rows are padded to whole groups: there is no last step.
struct StepInt8 {
  using X = int8_t;
  using Acc = I32x16;
  static constexpr int kStep = 4;
  static Acc step(const X* x, Line w, Acc acc) { return multiply_four(x, w, acc); }
  static Acc last(const X*, Line, Acc acc) { return acc; }
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

// ---- blocks ----

class Blocks {
 public:
  // fetch_ahead: how many bytes before they are needed a panel's lines are asked for.
  Blocks(const Piece& piece, size_t fetch_ahead)
      : piece_(piece),
        shape_(piece.w[0]->shape),
        block_k_(piece.choice.block_k),
        size_((shape_.k + block_k_ - 1) / block_k_),
        bytes_(shape_.block_bytes() * static_cast<size_t>(block_k_) /
               static_cast<size_t>(shape_.block_k())),
        ahead_(static_cast<int>((fetch_ahead + bytes_ - 1) / bytes_)) {}

  int size() const { return size_; }
  int block_k() const { return block_k_; }

  template <int Panels>
  Block get(int index) const {
    Block block;
    block.index = index;
    block.bytes = bytes_;
    block.k0 = index * block_k_;
    // Quantised rows are padded to whole groups, others are not.
    const bool padded = takes_quantized_rows(shape_.format);
    block.count = padded ? block_k_ : std::min(block_k_, shape_.k - block.k0);
    const int next = index + ahead_;
    for (int p = 0; p < Panels; ++p) {
      block.codes[p] = at(piece_.panels[p], index);
      block.scales[p] = reinterpret_cast<const float*>(block.codes[p] + bytes_ - kScaleBytes);
      block.next[p] =
          next < size_ ? at(piece_.panels[p], next) : at(piece_.next_panels[p], next - size_);
    }
    return block;
  }

 private:
  const std::byte* at(const std::byte* panel, int index) const {
    return panel + static_cast<size_t>(index) * bytes_;
  }

  const Piece& piece_;
  PackedShape shape_;
  int block_k_;
  int size_;
  size_t bytes_;
  int ahead_;
};

#include "kernels/x86/decode_body.h"
//
#include "kernels/x86/one_tile_body.h"
#include "kernels/x86/tiles_body.h"

template <typename Fold, typename Codes, int Panels>
inline void multiply_codes(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                           Sums& sums) {
  if (num_rows <= kTileRows) {
    one_tile_of<Fold, Codes, Panels>(num_rows, x, piece, first_row, sums);
  } else {
    all_tiles<Fold, Codes, Panels>(x, piece, first_row, num_rows, sums);
  }
}

template <int Panels>
inline void multiply(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                     Sums& sums) {
  const auto with = [&]<typename Fold, typename Codes>() {
    multiply_codes<Fold, Codes, Panels>(x, piece, first_row, num_rows, sums);
  };
  switch (piece.w[0]->shape.format) {
    case WeightFormat::kF32:
      return with.template operator()<FoldChain<StepF32>, PlainCodes>();
    case WeightFormat::kBf16:
      return with.template operator()<FoldChain<StepBf16>, PlainCodes>();
    case WeightFormat::kInt8:
      return with.template operator()<FoldInteger, PlainCodes>();
    case WeightFormat::kInt4:
      return with.template operator()<FoldInteger, Int4Codes>();
    case WeightFormat::kFp8:
      return with.template operator()<FoldScaled, Fp8Codes>();
    case WeightFormat::kMxfp4:
      return with.template operator()<FoldChain<StepBf16>, Mxfp4Codes>();
    case WeightFormat::kNvfp4:
      return with.template operator()<FoldChain<StepBf16>, Nvfp4Codes>();
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
  const MatmulChoice choice = choose_matmul(args.w.shape, kTileRows, kTilePanels);
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
  const MatmulChoice choice = choose_matmul(args.gate.shape, kTileRows, kTilePanels);
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
