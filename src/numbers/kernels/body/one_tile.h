// SPDX-License-Identifier: Apache-2.0
//
// Products with so few rows that they are one tile. Each line of codes is read once, expanded in
// registers and multiplied there. Reading the weights takes most of the time, and two rules keep
// memory busy (docs/kernels.md):
//   - Panels are read in strips, of as few panels as keep the processor busy, since a core reads
//     one run of memory faster than several. The prefetch distance in bytes is the same for every
//     width.
//   - Nothing is stored before the end of a strip. A store waits for earlier loads from memory, and
//     waiting stores soon stop the processor from reading ahead.
// Included by body/matmul.h.
#pragma once

// The constants of a tuning (kernels/matmul.h: Tuning):
//
//   kLocality       of __builtin_prefetch: 3 is the first-level cache, 2 the second-level cache
//   kUnhintedRows   no prefetch hints up to this many rows: a line takes so few instructions that
//                   the processor reads ahead by itself, and farther than with hints
//   kFloatChains    panels that a single row of floats reads together. Each is a chain of dependent
//                   additions. One chain is fast enough for a Zen 4's memory (not for its caches),
//                   and one run of memory is read faster than two
//   kAloneRows      with codes that need no expanding, up to this many rows keep the processor busy
//                   with one panel. More rows (up to kFewRows) are rounded up to an even number and
//                   take two panels: with one panel, six rows are only as many chains as a bf16
//                   step has cycles (docs/kernels.md)
struct ForZen5 {
  static constexpr int kLocality = 3, kFloatChains = 2, kAloneRows = kFewRows;
  template <typename Step, typename Codes>
  static constexpr int kUnhintedRows = Codes::kParts == 1 && Step::kStep <= 2 ? 1 : 0;
};
struct ForZen4 {
  static constexpr int kLocality = 2, kFloatChains = kFewestFloatChains, kAloneRows = 4;
  template <typename Step, typename Codes>
  static constexpr int kUnhintedRows = Codes::kUnhintedRows;
};
template <typename Tuned>
inline void prefetch_line(const std::byte* first, size_t at) {
  __builtin_prefetch(first + at, 0, Tuned::kLocality);
}

template <typename Tuned, typename Step, typename Codes, int Rows>
inline constexpr bool kHintsOf = Rows > Tuned::template kUnhintedRows<Step, Codes>;

// With more rows, four panels do not fit the registers. Formats with groups need two sums per
// element.
template <typename Codes>
inline constexpr int kMaxWideRows = Codes::kGroups == 1 ? 4 : 3;
// Whether this many rows take two panels of codes that need no expanding, in tiles of even height.
template <typename Tuned, typename Codes, int Rows>
inline constexpr bool kIsPaired = Codes::kParts == 1 && Rows > Tuned::kAloneRows;
// The number of panels that are read together.
template <typename Tuned, typename Step, typename Codes, int Rows>
constexpr int strip_panels() {
  if (Rows > kFewRows || kIsPaired<Tuned, Codes, Rows>) return kTilePanels;
  if (Rows <= Codes::kNarrowRows) return 1;
  const int wanted = Rows <= kMaxWideRows<Codes> ? Codes::kStrip : std::min(Codes::kStrip, 2);
  const bool one_chain = Rows == 1 && Step::kStep <= 2;
  return std::min(kFewPanels, one_chain ? std::max(wanted, Tuned::kFloatChains) : wanted);
}

// The most rows of one tile: as many as fit the registers beside those that expanding needs.
template <typename Codes>
inline constexpr int kMaxOneTileRows = std::max(kFewRows, std::min(kTileRows, Codes::kTallRows));

// The panels of a strip, and those of the next strip, which are prefetched when all lines of this
// one have been.
template <int Width>
struct StripPanels {
  const std::byte* codes[Width];
  const std::byte* next[Width];
};

// Multiplies `lines` lines of codes, from byte `at` of the panels on. Every kLinesOfHint lines it
// prefetches one line, from byte fetch_at of `fetch` on; 0: no prefetch.
template <typename Step, typename Codes, typename Tuned, int kLinesOfHint, int Rows, int Width>
inline __attribute__((always_inline)) void run_lines(RowTile<Rows> x,
                                                     const std::byte* const (&codes)[Width],
                                                     const std::byte* const (&fetch)[Width],
                                                     size_t at, size_t fetch_at, int lines,
                                                     typename Step::Acc (&acc)[Rows][Width]) {
  const auto line = [&](bool hints) __attribute__((always_inline)) {
    Line w[Width][Codes::kParts];
    const auto expand = [&](int p) __attribute__((always_inline)) {
      if (hints) prefetch_line<Tuned>(fetch[p], fetch_at);
      Codes::expand(load_line(codes[p] + at), w[p]);
    };
    if constexpr (Rows <= kFewRows) {
      for (int p = 0; p < Width; ++p) {
        expand(p);
        for (int part = 0; part < Codes::kParts; ++part) {
          for (int r = 0; r < Rows; ++r) {
            acc[r][p] = Step::step(x.word(part, r), w[p][part], acc[r][p]);
          }
        }
      }
    } else {
      // The panels' lines fit the registers, the words of all rows do not.
      for (int p = 0; p < Width; ++p) expand(p);
      for (int part = 0; part < Codes::kParts; ++part) {
        for (int r = 0; r < Rows; ++r) {
          for (int p = 0; p < Width; ++p) {
            acc[r][p] = Step::step(x.word(part, r), w[p][part], acc[r][p]);
          }
        }
      }
    }
    at += sizeof(Line);
    if (hints) fetch_at += sizeof(Line);
    x.words = x.word(Codes::kParts, 0);
  };
  int i = 0;
  // Unrolled, so that a line takes fewer instructions and more lines are in flight.
  if constexpr (Rows <= 2 && Codes::kParts == 1) {
#pragma GCC unroll 1
    for (; i + 4 <= lines; i += 4) {
      for (int n = 0; n < 4; ++n) line(kLinesOfHint > 0);
    }
  } else if constexpr (kLinesOfHint > 1) {
#pragma GCC unroll 1
    for (; i + kLinesOfHint <= lines; i += kLinesOfHint) {
      for (int n = 0; n < kLinesOfHint; ++n) line(n == 0);
    }
  }
#pragma GCC unroll 1
  for (; i < lines; ++i) line(kLinesOfHint > 0);
}

// As run_lines, for block `index` of a format with several groups. at: byte of the block's scales
// in the panels. words: the block's words of x.
template <typename Codes, typename Tuned, int kLinesOfHint, typename Fold, int Rows, int Width>
inline __attribute__((always_inline)) void run_groups(const Fold& fold, const RowTile<Rows> x,
                                                      int index, RowTile<Rows> words,
                                                      const std::byte* const (&codes)[Width],
                                                      const std::byte* const (&fetch)[Width],
                                                      size_t at, size_t fetch_at,
                                                      F32x16 (&acc)[Rows][Width]) {
  using Step = typename Fold::Step;
  size_t line_at = at + Codes::kFirstLine;
#pragma GCC unroll 1
  for (int i = 0; i < Codes::kGroups; ++i) {
    typename Step::Acc sum[Rows][Width];
    for (int r = 0; r < Rows; ++r) {
      fold.template begin_group<Width>(x, r, index * Codes::kGroups + i, sum[r]);
    }
    run_lines<Step, Codes, Tuned, kLinesOfHint>(words, codes, fetch, line_at, fetch_at,
                                                Codes::kLinesOfGroup, sum);
    F32x16 scales[Width];
    for (int p = 0; p < Width; ++p) scales[p] = Codes::group_scales(codes[p] + at);
    for (int r = 0; r < Rows; ++r) fold.template end_group<Width>(scales, sum[r], acc[r]);
    at += Codes::kScaleSize;
    line_at += Codes::kLinesOfGroup * sizeof(Line);
    fetch_at += Codes::kLinesOfGroup / std::max(kLinesOfHint, 1) * sizeof(Line);
    words.words = words.word(Codes::kLinesOfGroup * Codes::kParts, 0);
  }
}

// Multiplies all whole blocks of k.
template <typename Fold, typename Codes, typename Tuned, int Rows, int Width>
inline __attribute__((always_inline)) void run_blocks(const Fold& fold, const Cut& cut,
                                                      const RowTile<Rows> x,
                                                      const StripPanels<Width>& panels,
                                                      F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  constexpr bool kHints = kHintsOf<Tuned, Step, Codes, Rows>;
  // A local copy, whose address is not taken, so that it stays in registers.
  const std::byte* codes[Width];
  std::copy_n(panels.codes, Width, codes);
  const int lines = cut.block_k / (Codes::kParts * Step::kStep);
  // The scales are one line before or after the codes.
  const size_t scales_at = Codes::kFirstLine == 0 ? cut.block_bytes - sizeof(Line) : 0;
  const std::byte* fetch[Width];
  const int ahead = cut.blocks_ahead(Width);
  const int own_left = cut.whole_blocks - ahead;  // blocks of these panels still to prefetch
  for (int p = 0; p < Width; ++p) fetch[p] = codes[p] + cut.block_at(ahead);
  if (own_left <= 0) std::copy_n(panels.next, Width, fetch);
  size_t at = 0, fetch_at = 0;
  int word = 0;
  for (int index = 0; index < cut.whole_blocks; ++index) {
    if constexpr (kHints) {
      for (int p = 0; p < Width; ++p) {
        prefetch_line<Tuned>(fetch[p], fetch_at + scales_at);
        // Of two levels: minimums, and the lines behind the codes.
        if constexpr (Codes::kFirstLine > 2 * sizeof(Line)) {
          for (size_t more = sizeof(Line); more < Codes::kFirstLine; more += sizeof(Line)) {
            prefetch_line<Tuned>(fetch[p], fetch_at + more);
          }
          prefetch_line<Tuned>(fetch[p], fetch_at + cut.block_bytes - sizeof(Line));
          prefetch_line<Tuned>(fetch[p], fetch_at + cut.block_bytes - 2 * sizeof(Line));
        }
      }
    }
    typename Fold::Acc acc[Rows][Width];
    for (int r = 0; r < Rows; ++r) fold.template begin<Width>(x, r, index, sum[r], acc[r]);
    const RowTile<Rows> words{x.word(word, 0)};
    if constexpr (Codes::kGroups > 1) {
      run_groups<Codes, Tuned, kHints ? 1 : 0>(fold, x, index, words, codes, fetch, at,
                                               fetch_at + Codes::kFirstLine, acc);
    } else {
      run_lines<Step, Codes, Tuned, kHints ? 1 : 0>(words, codes, fetch, at, fetch_at, lines, acc);
    }
    const auto scales = fold.template scales<Width>({codes, at + cut.block_bytes - kScaleBytes});
    for (int r = 0; r < Rows; ++r) {
      fold.template end<Width>(x, r, index, scales, acc[r], sum[r]);
    }
    word += lines * Codes::kParts;
    at += cut.block_bytes;
    fetch_at += cut.block_bytes;
    if (index + 1 != own_left) continue;
    std::copy_n(panels.next, Width, fetch);
    fetch_at = 0;
  }
}

// Multiplies the last block of k if it is not whole.
template <typename Fold, typename Codes, int Rows, int Width>
inline __attribute__((noinline)) void run_rest(const Fold& fold, const Cut& cut,
                                               const RowTile<Rows> x,
                                               const std::byte* const (&codes)[Width],
                                               F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  const int index = cut.num_blocks - 1;
  typename Fold::Acc acc[Rows][Width];
  for (int r = 0; r < Rows; ++r) fold.template begin<Width>(x, r, index, sum[r], acc[r]);
  OperandsOf<Step, Codes> operands;
  for (int p = 0; p < Width; ++p) {
    const std::byte* line = operands.get(cut, codes[p] + cut.block_at(index), 1);
    int word = index * cut.block_k / Step::kStep;
    for (; word * Step::kStep < cut.k; ++word, line += sizeof(Line)) {
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = Step::step(x.word(word, r), load_line(line), acc[r][p]);
      }
    }
  }
  const auto scales = fold.template scales<Width>({codes, cut.scales_at(index)});
  for (int r = 0; r < Rows; ++r) {
    fold.template end<Width>(x, r, index, scales, acc[r], sum[r]);
  }
}

// Computes a strip over all of k and stores its sums from panel `first` of sums on. Not inlined, so
// that the compiler has all registers for it.
template <typename Fold, typename Codes, typename Tuned, int Rows, int Width>
inline __attribute__((noinline)) void strip(const Fold& fold, const Cut& cut, const RowTile<Rows> x,
                                            const StripPanels<Width>& panels, int first,
                                            float (*sums)[kMaxPanels][kPanelWidth]) {
  F32x16 sum[Rows][Width];
  for (auto& of_row : sum) {
    for (F32x16& s : of_row) s = zero();
  }
  run_blocks<Fold, Codes, Tuned>(fold, cut, x, panels, sum);
  const auto put = [&](const F32x16(&all)[Rows][Width]) {
    for (int r = 0; r < Rows; ++r) {
      for (int p = 0; p < Width; ++p) store(sums[r][first + p], all[r][p]);
    }
  };
  if constexpr (Codes::kGroups == 1) {
    if (cut.whole_blocks < cut.num_blocks) {
      // A copy, so that the address of sum itself is not taken and it stays in registers.
      F32x16 all[Rows][Width];
      std::copy_n(&sum[0][0], Rows * Width, &all[0][0]);
      run_rest<Fold, Codes>(fold, cut, x, panels.codes, all);
      return put(all);
    }
  }
  put(sum);
}

// ---- products of one tile ----
//
// The interface of a Product (body/matmul.h):
//
//   kMatrices         number of matrices that each row is multiplied with: 1, or 2 (gate and up)
//   num_rows, x       the rows
//   first, last       the panels of each matrix to compute: [first, last)
//   panel(cut, q, i)  panel i of matrix q
//   upcoming_panel    the same; from `last` on, the panels that the thread will read next
//   put<n>(row, i, sums)
//                     stores a row's n sums: of panels from i on of the first matrix, then of the
//                     second

// Computes the strips of kEach panels of each matrix, from `panel` on.
template <typename Fold, typename Codes, typename Tuned, int Rows, int kWidth, int kEach,
          typename Product>
inline __attribute__((always_inline)) void one_tile_step(const Product& product, const Fold& fold,
                                                         const Cut& cut, const RowTile<Rows> x,
                                                         int panel) {
  constexpr int kPanels = kEach * Product::kMatrices, kStrip = std::min(kWidth, kPanels);
  // The panels of this step, then those of the next step, in the order in which they are read.
  const std::byte* codes[2 * kPanels];
  for (int q = 0; q < Product::kMatrices; ++q) {
    const std::byte* const first = product.panel(cut, q, panel);
    for (int p = 0; p < 2 * kEach; ++p) {
      codes[p / kEach * kPanels + q * kEach + p % kEach] =
          first + static_cast<size_t>(p) * cut.panel_bytes;
    }
    if (panel + 2 * kEach <= product.last()) continue;
    for (int p = 0; p < kEach; ++p) {
      codes[kPanels + q * kEach + p] = product.upcoming_panel(cut, q, panel + kEach + p);
    }
  }
  alignas(64) float sums[Rows][kMaxPanels][kPanelWidth];
  for (int first = 0; first < kPanels; first += kStrip) {
    StripPanels<kStrip> panels;
    std::copy_n(codes + first, kStrip, panels.codes);
    std::copy_n(codes + first + kStrip, kStrip, panels.next);
    // Without hints, the processor prefetches by itself, but does not know where the next strip is.
    if constexpr (!kHintsOf<Tuned, typename Fold::Step, Codes, Rows>) {
      constexpr size_t kLines = 4;
      for (int p = 0; p < kStrip; ++p) {
        for (size_t i = 0; i < kLines; ++i) prefetch_line<Tuned>(panels.next[p], i * sizeof(Line));
      }
    }
    strip<Fold, Codes, Tuned>(fold, cut, x, panels, first, sums);
  }
  for (int r = 0; r < std::min(Rows, product.num_rows()); ++r) {
    product.template put<kPanels>(r, panel, sums[r]);
  }
}

template <typename Fold, typename Codes, typename Tuned, int Rows, typename Product>
inline void one_tile(const Product& product, const Cut& cut) {
  constexpr int kStrip = strip_panels<Tuned, typename Fold::Step, Codes, Rows>();
  // Gate and up are two runs of memory in any case, so they are read together. Only AVX2's highest
  // tile has too few registers for the sums and the lines of both.
  constexpr bool kFits = kTileRows > kFewRows || Rows < kTileRows;
  constexpr int kWidth = kFits ? std::max(kStrip, Product::kMatrices) : kStrip;
  constexpr int kEach = std::max(1, kWidth / Product::kMatrices);
  const Fold fold(cut);
  std::byte* const words = row_tiles_memory(cut.words.tile_bytes(Rows) + kBehindTile);
  pack_tile(product.x(), cut.words, 0, product.num_rows(), Rows, words);
  const RowTile<Rows> x{words};
  int panel = product.first();
  for (; panel + kEach <= product.last(); panel += kEach) {
    one_tile_step<Fold, Codes, Tuned, Rows, kWidth, kEach>(product, fold, cut, x, panel);
  }
  if constexpr (kEach > 1) {
    for (; panel < product.last(); ++panel) {
      one_tile_step<Fold, Codes, Tuned, Rows, kWidth, 1>(product, fold, cut, x, panel);
    }
  }
  // Without hints, the processor prefetches only along the memory it reads. So the first lines of
  // the next product's panels are prefetched here.
  if constexpr (!kHintsOf<Tuned, typename Fold::Step, Codes, Rows>) {
    constexpr size_t kLines = 16;
    for (size_t i = 0; i < kLines; ++i) {
      for (int q = 0; q < Product::kMatrices; ++q) {
        prefetch_line<Tuned>(product.upcoming_panel(cut, q, product.last()), i * sizeof(Line));
      }
    }
  }
}

// The height of the next higher tile.
template <typename Tuned, typename Codes, int Rows>
inline constexpr int kNextHeight =
    Rows >= kFewRows || kIsPaired<Tuned, Codes, Rows + 1> ? Rows + kRowUnit : Rows + 1;

// Calls one_tile with the number of rows as a template constant, rounded up to a height of tiles.
// False: too many rows for one tile.
template <typename Fold, typename Codes, typename Tuned, int Rows = 1, typename Product>
inline bool one_tile_of(const Product& product, const Cut& cut) {
  if constexpr (Rows > kMaxOneTileRows<Codes>) {
    return false;
  } else {
    if (product.num_rows() > Rows) {
      return one_tile_of<Fold, Codes, Tuned, kNextHeight<Tuned, Codes, Rows>>(product, cut);
    }
    one_tile<Fold, Codes, Tuned, Rows>(product, cut);
    return true;
  }
}
