// SPDX-License-Identifier: Apache-2.0
//
// Products of so few rows that they make one tile: each line of codes is read once, expanded in
// registers and multiplied there. Reading the weights is all that takes long, and two things keep
// it going (docs/decisions/0008-few-rows.md):
//   - Panels are read in strips of as few as keep the processor busy: a core reads one run of
//     memory faster than several at once. Lines are fetched as far ahead whatever the width.
//   - Nothing is stored before a strip's end. Stores wait for what was asked of memory before them,
//     and with such stores about, reading ahead comes to a halt.
// Included by matmul_body.h.
#pragma once

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
template <typename Step, typename Codes>
inline constexpr int kTallRows = kTileRows < 6 ? 0 : std::min(Step::kTallRows, Codes::kTallRows);

// A run of blocks of a strip.
template <typename X, int Rows, int Width>
struct Run {
  const X* xs[Rows];
  const std::byte* codes[Width];  // panels
  const std::byte* fetch[Width];  // what to fetch meanwhile, from the first block on
  int begin, end;                 // blocks
};

// Asks for a line: where tiles share a piece, into the cache from which all of them will read it.
template <int Slower>
inline void fetch_line(const std::byte* first, size_t at) {
  __builtin_prefetch(first + (at >> Slower), 0, Slower == 0 ? 3 : 2);
}

// The lines of a group of a block. Slower: see Fetching.
template <typename Step, typename Codes, int Slower, int Rows, int Width>
inline __attribute__((always_inline)) void run_lines(const Run<typename Step::X, Rows, Width>& run,
                                                     size_t at, size_t fetch_at, int k, int lines,
                                                     const typename Codes::Group (&group)[Width],
                                                     typename Step::Acc (&acc)[Rows][Width]) {
#pragma GCC unroll 1
  for (int i = 0; i < lines; ++i) {
    for (int p = 0; p < Width; ++p) {
      fetch_line<Slower>(run.fetch[p], fetch_at);
      Line w[Codes::kParts];
      Codes::expand(load_line(run.codes[p] + at), group[p], w);
      for (int part = 0; part < Codes::kParts; ++part) {
        for (int r = 0; r < Rows; ++r) {
          acc[r][p] = Step::step(run.xs[r] + k + part * Step::kStep, w[part], acc[r][p]);
        }
      }
    }
    at += sizeof(Line);
    fetch_at += sizeof(Line);
    k += Codes::kParts * Step::kStep;
  }
}

template <typename Fold, typename Codes, int Slower, int Rows, int Width>
inline __attribute__((always_inline)) void run_blocks(
    const Fold& fold, const Cut& cut, const Run<typename Fold::Step::X, Rows, Width>& run,
    F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  const int group_k = cut.block_k / Codes::kGroups;
  const int lines = group_k / (Codes::kParts * Step::kStep);
  const size_t first = cut.block_at(run.begin);
  // Scales are a line before or behind those of codes.
  const size_t scales_at = Codes::kFirstLine == 0 ? cut.block_bytes - sizeof(Line) : 0;
  size_t at = first;
  int k = run.begin * cut.block_k;
  for (int index = run.begin; index < run.end; ++index) {
    typename Step::Acc acc[Rows][Width];
    for (int r = 0; r < Rows; ++r) fold.template begin<Width>(run.xs[r], index, sum[r], acc[r]);
    for (int p = 0; p < Width; ++p) fetch_line<Slower>(run.fetch[p], at - first + scales_at);
    size_t line_at = at + Codes::kFirstLine;
#pragma GCC unroll 1
    for (int i = 0; i < Codes::kGroups; ++i) {
      typename Codes::Group group[Width];
      for (int p = 0; p < Width; ++p) group[p] = Codes(run.codes[p] + at).group(i);
      run_lines<Step, Codes, Slower>(run, line_at, line_at - first, k, lines, group, acc);
      line_at += static_cast<size_t>(lines) * sizeof(Line);
      k += group_k;
    }
    at += cut.block_bytes;
    const auto scales = fold.template scales<Width>({run.codes, at - kScaleBytes});
    for (int r = 0; r < Rows; ++r) {
      fold.template end<Width>(run.xs[r], index, scales, acc[r], sum[r]);
    }
  }
}

// The block at the end of k that is not whole.
template <typename Fold, typename Codes, int Rows, int Width>
inline __attribute__((noinline)) void run_rest(const Fold& fold, const Cut& cut,
                                               const Run<typename Fold::Step::X, Rows, Width>& run,
                                               F32x16 (&sum)[Rows][Width]) {
  using Step = typename Fold::Step;
  const int index = cut.num_blocks - 1;
  typename Step::Acc acc[Rows][Width];
  for (int r = 0; r < Rows; ++r) fold.template begin<Width>(run.xs[r], index, sum[r], acc[r]);
  OperandsOf<Step, Codes> operands;
  for (int p = 0; p < Width; ++p) {
    const std::byte* line = operands.get(cut, run.codes[p] + cut.block_at(index), 1);
    int k = index * cut.block_k;
    for (; k + Step::kStep <= cut.k; k += Step::kStep, line += sizeof(Line)) {
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = Step::step(run.xs[r] + k, load_line(line), acc[r][p]);
      }
    }
    if (k == cut.k) continue;
    for (int r = 0; r < Rows; ++r) {
      acc[r][p] = Step::last(run.xs[r] + k, load_line(line), acc[r][p]);
    }
  }
  const auto scales = fold.template scales<Width>({run.codes, cut.scales_at(index)});
  for (int r = 0; r < Rows; ++r) {
    fold.template end<Width>(run.xs[r], index, scales, acc[r], sum[r]);
  }
}

// What the tiles of a piece fetch meanwhile. A tile alone: lines kFetchAhead from where it is.
// Several (Slower > 0): tile number `tile` a part of the next piece, a line every 2^Slower lines.
struct Fetching {
  int tile = 0;
};

// Rows of x, `count` of them: a tile that is higher takes the last one for the rest, too.
struct TileRows {
  const InputRows& x;
  int first;
  int count;

  const void* operator[](int row) const { return x[first + std::min(row, count - 1)]; }
};

// Width panels of a piece, from `first` on.
template <typename Fold, typename Codes, int Slower, int Rows, int Panels, int Width>
inline void strip(const TileRows& rows, const Piece& piece, const Fold& fold, Fetching fetching,
                  int first, float (*sums)[kMaxPanels][kPanelWidth]) {
  using X = typename Fold::Step::X;
  const Cut& cut = piece.cut;
  const int whole = cut.whole_blocks();
  const int ahead = Slower == 0 ? std::min(whole, cut.blocks_ahead(Width)) : 0;
  Run<X, Rows, Width> run{.begin = 0, .end = whole - ahead};
  Run<X, Rows, Width> run_to_end{.begin = whole - ahead, .end = whole};
  for (int r = 0; r < Rows; ++r) {
    run.xs[r] = run_to_end.xs[r] = static_cast<const X*>(rows[r]);
  }
  for (int p = 0; p < Width; ++p) {
    const int after = first + Width + p;
    run.codes[p] = run_to_end.codes[p] = piece.panels[first + p];
    run.fetch[p] = run.codes[p] + cut.block_at(ahead);
    run_to_end.fetch[p] = after < Panels ? piece.panels[after] : piece.next_panels[after - Panels];
    if constexpr (Slower > 0) {
      const size_t part = static_cast<size_t>(fetching.tile) * cut.panel_bytes >> Slower;
      run.fetch[p] = piece.next_panels[first + p] + std::min(part, cut.panel_bytes);
    }
  }
  F32x16 sum[Rows][Width];
  for (auto& of_row : sum) {
    for (F32x16& s : of_row) s = zero();
  }
  run_blocks<Fold, Codes, Slower>(fold, cut, run, sum);
  if constexpr (Slower == 0) run_blocks<Fold, Codes, Slower>(fold, cut, run_to_end, sum);
  // A copy: sum itself is to have no address, so that it stays in registers.
  F32x16 all[Rows][Width];
  std::copy_n(&sum[0][0], Rows * Width, &all[0][0]);
  if (whole < cut.num_blocks) run_rest<Fold, Codes>(fold, cut, run_to_end, all);
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Width; ++p) store(sums[r][first + p], all[r][p]);
  }
}

template <typename Fold, typename Codes, int Slower, int Rows, int Panels>
inline void one_tile(const TileRows& rows, const Piece& piece, Fetching fetching,
                     float (*sums)[kMaxPanels][kPanelWidth]) {
  constexpr int kWidth = strip_panels<typename Fold::Step, Codes, Rows>(Panels);
  static_assert(Panels % kWidth == 0);
  const Fold fold(piece.cut);
  for (int first = 0; first < Panels; first += kWidth) {
    strip<Fold, Codes, Slower, Rows, Panels, kWidth>(rows, piece, fold, fetching, first, sums);
  }
}

// Calls one_tile with the number of rows as a constant.
template <typename Fold, typename Codes, int Slower, int Panels, int Rows = 1>
inline void one_tile_of(const TileRows& rows, const Piece& piece, Fetching fetching,
                        float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTileRows) {
    if (rows.count > Rows) {
      return one_tile_of<Fold, Codes, Slower, Panels, Rows + 1>(rows, piece, fetching, sums);
    }
  }
  one_tile<Fold, Codes, Slower, Rows, Panels>(rows, piece, fetching, sums);
}

// The same for rows that fill the registers in narrower strips: an even number of them.
template <typename Fold, typename Codes, int Panels, int Rows = kTileRows + 2>
inline void tall_tile_of(const TileRows& rows, const Piece& piece,
                         float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTallRows<typename Fold::Step, Codes>) {
    if (rows.count > Rows) {
      return tall_tile_of<Fold, Codes, Panels, Rows + 2>(rows, piece, sums);
    }
  }
  one_tile<Fold, Codes, 0, Rows, Panels>(rows, piece, {}, sums);
}

// Some tiles of nearly equal height one after the other, each of which expands the codes anew:
// where that takes less than leaving registers after every group (tiles_body.h).
template <typename Fold, typename Codes, int Panels>
inline void few_tiles(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                      Sums& sums) {
  const int num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    one_tile_of<Fold, Codes, 1, Panels, 2>({x, first_row + row, height}, piece, {.tile = i},
                                           sums.values + row);
    row += height;
  }
}
