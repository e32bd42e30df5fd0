// SPDX-License-Identifier: Apache-2.0
//
// Products of so few rows that they make one tile: each line of codes is read once, expanded in
// registers and multiplied there. Reading the weights is all that takes long, and two things keep
// it going (docs/decisions/0008-few-rows.md, 0027-lines-under-way.md):
//   - Panels are read in strips of as few as keep the processor busy: a core reads one run of
//     memory faster than several at once. Lines are fetched as far ahead whatever the width.
//   - Nothing is stored before a strip's end. Stores wait for what was asked of memory before them,
//     and with such stores about, reading ahead comes to a halt.
// Included by matmul_body.h.
#pragma once

// What suits a processor (kernels/matmul.h: Tuning), first how lines that will be read are asked
// for:
//
//   kLocality       __builtin_prefetch's: the first level is 3, the second 2
//   kSlower         a line for every 2^kSlower lines that are read
//   kUnhintedRows   up to so many rows no line is asked for: a line takes so few instructions that
//                   the processor looks far enough ahead by itself, and farther without hints
//   kTallRows       the most rows of a tall tile
//
// Tiles beyond ten rows are one panel wide: every multiply-add loads an operand. Zen 5 does two
// such loads a cycle, Zen 4 one, beside which plain operands are better read twice (tiles_body.h).
struct ForZen5 {
  static constexpr int kLocality = 3, kSlower = 0;
  template <typename Step, typename Codes>
  static constexpr int kUnhintedRows = Codes::kParts == 1 && Step::kStep <= 2 ? 1 : 0;
  template <typename Step>
  static constexpr int kTallRows = Step::kTallRows;
};
struct ForZen4 {
  static constexpr int kLocality = 2, kSlower = 0;
  template <typename Step, typename Codes>
  static constexpr int kUnhintedRows = Codes::kUnhintedRows;
  template <typename Step>
  static constexpr int kTallRows = Step::kStep <= 2 ? 10 : Step::kTallRows;
};
// Of few_tiles, which share a piece: into the cache from which all of them will read it.
struct ForSharedPiece {
  static constexpr int kLocality = 2, kSlower = 1;
  template <typename Step, typename Codes>
  static constexpr int kUnhintedRows = 0;
};
template <typename Tuned>
inline void fetch_line(const std::byte* first, size_t at) {
  __builtin_prefetch(first + (at >> Tuned::kSlower), 0, Tuned::kLocality);
}
template <typename Tuned, typename Step, typename Codes, int Rows>
inline constexpr bool kFetches = Rows > Tuned::template kUnhintedRows<Step, Codes>;

// More rows times parts than this leave no registers for four panels.
inline constexpr int kMaxWideParts = 8;
// A single row's one chain of floats would be slower than the caches: it takes two panels at least.
template <typename Step, typename Codes, int Rows>
constexpr int strip_panels(int panels) {
  if (Rows > kTileRows) return std::min(panels, Rows <= 10 ? 2 : 1);
  if (Rows <= Codes::kNarrowRows) return 1;
  const bool fits = Rows * Codes::kParts <= kMaxWideParts;
  const int wanted = fits ? Codes::kStrip : std::min(Codes::kStrip, 2);
  return std::min(panels, Rows == 1 ? std::max(wanted, Step::kMinPanels) : wanted);
}

// The most rows of a tall tile: where registers hold them beside what expanding takes (10: two
// panels, more: one), and the products are what takes long. 0: none, where registers are fewer.
template <typename Tuned, typename Step, typename Codes>
inline constexpr int kTallRows =
    kTileRows < 6 ? 0 : std::min(Tuned::template kTallRows<Step>, Codes::kTallRows);

// The panels of a strip, and what to fetch when no more of their own is left to be fetched: the
// next strip; in few_tiles, from the start, each a part of the next piece.
template <int Width>
struct StripPanels {
  const std::byte* codes[Width];
  const std::byte* next[Width];
};

// The lines of a group of a block, at `at` of the panels and from fetch_at on of what to fetch.
template <typename Step, typename Codes, typename Tuned, int Rows, int Width>
inline __attribute__((always_inline)) void run_lines(const typename Step::X* const (&xs)[Rows],
                                                     const std::byte* const (&codes)[Width],
                                                     const std::byte* const (&fetch)[Width],
                                                     size_t at, size_t fetch_at, int k, int lines,
                                                     const typename Codes::Group (&group)[Width],
                                                     typename Step::Acc (&acc)[Rows][Width]) {
  const auto line = [&]() __attribute__((always_inline)) {
    for (int p = 0; p < Width; ++p) {
      if constexpr (kFetches<Tuned, Step, Codes, Rows>) fetch_line<Tuned>(fetch[p], fetch_at);
      Line w[Codes::kParts];
      Codes::expand(load_line(codes[p] + at), group[p], w);
      for (int part = 0; part < Codes::kParts; ++part) {
        for (int r = 0; r < Rows; ++r) {
          acc[r][p] = Step::step(xs[r] + k + part * Step::kStep, w[part], acc[r][p]);
        }
      }
    }
    at += sizeof(Line);
    fetch_at += sizeof(Line);
    k += Codes::kParts * Step::kStep;
  };
  int i = 0;
  // The fewer instructions a line takes, the more lines are under way at once.
  if constexpr (Rows == 1 && Codes::kParts == 1) {
#pragma GCC unroll 1
    for (; i + 4 <= lines; i += 4) {
      line();
      line();
      line();
      line();
    }
  }
#pragma GCC unroll 1
  for (; i < lines; ++i) line();
}

// All whole blocks.
template <typename Fold, typename Codes, typename Tuned, int Rows, int Width>
inline __attribute__((always_inline)) void run_blocks(
    const Fold& fold, const Cut& cut, const typename Fold::Step::X* const (&x_rows)[Rows],
    const StripPanels<Width>& panels, F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  // Copies: what has no address stays in registers.
  const typename Step::X* xs[Rows];
  const std::byte* codes[Width];
  std::copy_n(x_rows, Rows, xs);
  std::copy_n(panels.codes, Width, codes);
  const int group_k = cut.block_k / Codes::kGroups;
  const int lines = group_k / (Codes::kParts * Step::kStep);
  // Scales are a line before or behind those of codes.
  const size_t scales_at = Codes::kFirstLine == 0 ? cut.block_bytes - sizeof(Line) : 0;
  const std::byte* fetch[Width];
  int own_left = 0;  // blocks to be fetched of these panels
  if constexpr (Tuned::kSlower == 0) {
    const int ahead = cut.blocks_ahead(Width);
    own_left = cut.whole_blocks - ahead;
    for (int p = 0; p < Width; ++p) fetch[p] = codes[p] + cut.block_at(ahead);
  }
  if (own_left <= 0) std::copy_n(panels.next, Width, fetch);
  size_t at = 0, fetch_at = 0;
  int k = 0;
  for (int index = 0; index < cut.whole_blocks; ++index) {
    typename Step::Acc acc[Rows][Width];
    for (int r = 0; r < Rows; ++r) fold.template begin<Width>(xs[r], index, sum[r], acc[r]);
    if constexpr (kFetches<Tuned, Step, Codes, Rows>) {
      for (int p = 0; p < Width; ++p) fetch_line<Tuned>(fetch[p], fetch_at + scales_at);
    }
    size_t line_at = Codes::kFirstLine;
#pragma GCC unroll 1
    for (int i = 0; i < Codes::kGroups; ++i) {
      typename Codes::Group group[Width];
      for (int p = 0; p < Width; ++p) group[p] = Codes(codes[p] + at).group(i);
      run_lines<Step, Codes, Tuned>(xs, codes, fetch, at + line_at, fetch_at + line_at, k, lines,
                                    group, acc);
      line_at += static_cast<size_t>(lines) * sizeof(Line);
      k += group_k;
    }
    at += cut.block_bytes;
    fetch_at += cut.block_bytes;
    const auto scales = fold.template scales<Width>({codes, at - kScaleBytes});
    for (int r = 0; r < Rows; ++r) {
      fold.template end<Width>(xs[r], index, scales, acc[r], sum[r]);
    }
    if (index + 1 != own_left) continue;
    std::copy_n(panels.next, Width, fetch);
    fetch_at = 0;
  }
}

// The block at the end of k that is not whole.
template <typename Fold, typename Codes, int Rows, int Width>
inline __attribute__((noinline)) void run_rest(const Fold& fold, const Cut& cut,
                                               const typename Fold::Step::X* const (&xs)[Rows],
                                               const std::byte* const (&codes)[Width],
                                               F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  const int index = cut.num_blocks - 1;
  typename Step::Acc acc[Rows][Width];
  for (int r = 0; r < Rows; ++r) fold.template begin<Width>(xs[r], index, sum[r], acc[r]);
  OperandsOf<Step, Codes> operands;
  for (int p = 0; p < Width; ++p) {
    const std::byte* line = operands.get(cut, codes[p] + cut.block_at(index), 1);
    int k = index * cut.block_k;
    for (; k + Step::kStep <= cut.k; k += Step::kStep, line += sizeof(Line)) {
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k, load_line(line), acc[r][p]);
    }
    if (k == cut.k) continue;
    for (int r = 0; r < Rows; ++r) acc[r][p] = Step::last(xs[r] + k, load_line(line), acc[r][p]);
  }
  const auto scales = fold.template scales<Width>({codes, cut.scales_at(index)});
  for (int r = 0; r < Rows; ++r) {
    fold.template end<Width>(xs[r], index, scales, acc[r], sum[r]);
  }
}

// The sums over all of k, to columns `first` … of sums. A function of its own: so registers
// suffice.
template <typename Fold, typename Codes, typename Tuned, int Rows, int Width>
inline __attribute__((noinline)) void strip(const Fold& fold, const Cut& cut,
                                            const typename Fold::Step::X* const (&xs)[Rows],
                                            const StripPanels<Width>& panels, int first,
                                            float (*sums)[kMaxPanels][kPanelWidth]) {
  F32x16 sum[Rows][Width];
  for (auto& of_row : sum) {
    for (F32x16& s : of_row) s = zero();
  }
  run_blocks<Fold, Codes, Tuned>(fold, cut, xs, panels, sum);
  const auto put = [&](const F32x16(&all)[Rows][Width]) {
    for (int r = 0; r < Rows; ++r) {
      for (int p = 0; p < Width; ++p) store(sums[r][first + p], all[r][p]);
    }
  };
  if (cut.whole_blocks == cut.num_blocks) return put(sum);
  // A copy: sum itself is to have no address, so that it stays in registers.
  F32x16 all[Rows][Width];
  std::copy_n(&sum[0][0], Rows * Width, &all[0][0]);
  run_rest<Fold, Codes>(fold, cut, xs, panels.codes, all);
  put(all);
}

// Rows of x from `first` on, `count` of them: a tile that is higher takes the last one for the
// rest, too.
template <typename X, int Rows>
struct TileRows {
  const X* xs[Rows];

  TileRows(const InputRows& x, int first, int count) {
    for (int r = 0; r < Rows; ++r) {
      xs[r] = static_cast<const X*>(x[first + std::min(r, count - 1)]);
    }
  }
};

// ---- products of so few rows that they make one tile ----
//
// What a product is made of, in strips of panels next to each other (matmul_body.h):
//
//   kMatrices         how many matrices each row is multiplied with, panel by panel of the same
//                     number
//   num_rows, x       the rows
//   first, last       which panels of each matrix are wanted: [first, last)
//   final_panel       the number of each matrix's last panel
//   panel(cut, q, i)  panel i of matrix number q
//   put(row, i, sums) takes a row's sums of panels [i, i + n) of the first matrix, then of the
//   second

// The strips of kEach panels of each matrix, from `panel` on.
template <typename Fold, typename Codes, typename Tuned, int Rows, int kWidth, int kEach,
          typename Product>
inline __attribute__((always_inline)) void one_tile_step(
    const Product& product, const Fold& fold, const Cut& cut,
    const TileRows<typename Fold::Step::X, Rows>& rows, int panel) {
  constexpr int kPanels = kEach * Product::kMatrices, kStrip = std::min(kWidth, kPanels);
  // This step's panels and then the next one's, in the order in which they are read.
  const std::byte* codes[2 * kPanels];
  for (int q = 0; q < Product::kMatrices; ++q) {
    const std::byte* const first = product.panel(cut, q, panel);
    const std::byte* const final = product.panel(cut, q, product.final_panel());
    for (int p = 0; p < kEach; ++p) {
      const std::byte* const now = first + static_cast<size_t>(p) * cut.panel_bytes;
      codes[q * kEach + p] = now;
      codes[kPanels + q * kEach + p] = std::min(now + kEach * cut.panel_bytes, final);
    }
  }
  alignas(64) float sums[Rows][kMaxPanels][kPanelWidth];
  for (int first = 0; first < kPanels; first += kStrip) {
    StripPanels<kStrip> panels;
    std::copy_n(codes + first, kStrip, panels.codes);
    std::copy_n(codes + first + kStrip, kStrip, panels.next);
    strip<Fold, Codes, Tuned>(fold, cut, rows.xs, panels, first, sums);
  }
  for (int r = 0; r < std::min(Rows, product.num_rows()); ++r) {
    F32x16 of_row[kPanels];
    for (int p = 0; p < kPanels; ++p) of_row[p] = load(sums[r][p]);
    product.put(r, panel, of_row);
  }
}

template <typename Fold, typename Codes, typename Tuned, int Rows, typename Product>
inline void one_tile(const Product& product, const Cut& cut) {
  constexpr int kStrip = strip_panels<typename Fold::Step, Codes, Rows>(kTilePanels);
  // Gate and up are two runs of memory in any case: side by side neither is left and taken up
  // again. For that registers suffice if sums are two thirds of a tile's, which leaves room for the
  // lines of both.
  constexpr bool kFits = 3 * Rows * Product::kMatrices <= 2 * kTileRows * kTilePanels;
  constexpr int kWidth = kFits ? std::max(kStrip, Product::kMatrices) : kStrip;
  constexpr int kEach = std::max(1, kWidth / Product::kMatrices);
  const Fold fold(cut);
  const TileRows<typename Fold::Step::X, Rows> rows(product.x(), 0, product.num_rows());
  int panel = product.first();
  for (; panel + kEach <= product.last(); panel += kEach) {
    one_tile_step<Fold, Codes, Tuned, Rows, kWidth, kEach>(product, fold, cut, rows, panel);
  }
  if constexpr (kEach > 1) {
    for (; panel < product.last(); ++panel) {
      one_tile_step<Fold, Codes, Tuned, Rows, kWidth, 1>(product, fold, cut, rows, panel);
    }
  }
}

// Calls one_tile with the number of rows as a constant; of tall tiles, an even one. False: they are
// too many.
template <typename Fold, typename Codes, typename Tuned, int Rows = 1, typename Product>
inline bool one_tile_of(const Product& product, const Cut& cut) {
  constexpr int kMost = std::max(kTileRows, kTallRows<Tuned, typename Fold::Step, Codes>);
  if constexpr (Rows > kMost) {
    return false;
  } else {
    if (product.num_rows() > Rows) {
      constexpr int kMore = Rows < kTileRows ? Rows + 1 : Rows + 2;
      return one_tile_of<Fold, Codes, Tuned, kMore>(product, cut);
    }
    one_tile<Fold, Codes, Tuned, Rows>(product, cut);
    return true;
  }
}

// ---- a few tiles ----

// One tile of several, which share a piece: each fetches a part of the next one.
template <typename Fold, typename Codes, int Rows, int kPanels>
inline void tile_of_few(const InputRows& x, int first_row, int count, const Piece& piece, int tile,
                        float (*sums)[kMaxPanels][kPanelWidth]) {
  constexpr int kWidth = strip_panels<typename Fold::Step, Codes, Rows>(kPanels);
  static_assert(kPanels % kWidth == 0);
  const Cut& cut = piece.cut;
  const Fold fold(cut);
  const TileRows<typename Fold::Step::X, Rows> rows(x, first_row, count);
  const size_t part = static_cast<size_t>(tile) * cut.panel_bytes >> ForSharedPiece::kSlower;
#pragma GCC unroll 1
  for (int first = 0; first < kPanels; first += kWidth) {
    StripPanels<kWidth> panels;
    for (int p = 0; p < kWidth; ++p) {
      panels.codes[p] = piece.panels[first + p];
      panels.next[p] = piece.next_panels[first + p] + std::min(part, cut.panel_bytes);
    }
    strip<Fold, Codes, ForSharedPiece>(fold, cut, rows.xs, panels, first, sums);
  }
}

template <typename Fold, typename Codes, int kPanels, int Rows = 2>
inline void tile_of_few_of(const InputRows& x, int first_row, int count, const Piece& piece,
                           int tile, float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTileRows) {
    if (count > Rows) {
      return tile_of_few_of<Fold, Codes, kPanels, Rows + 1>(x, first_row, count, piece, tile, sums);
    }
  }
  tile_of_few<Fold, Codes, Rows, kPanels>(x, first_row, count, piece, tile, sums);
}

// Tiles of nearly equal height one after the other, each of which expands the codes anew: where
// that takes less than leaving registers after every group (tiles_body.h).
template <typename Fold, typename Codes, int kPanels>
inline void few_tiles(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                      Sums& sums) {
  const int num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    tile_of_few_of<Fold, Codes, kPanels>(x, first_row + row, height, piece, i, sums.values + row);
    row += height;
  }
}
