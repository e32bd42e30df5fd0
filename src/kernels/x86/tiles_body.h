// SPDX-License-Identifier: Apache-2.0
//
// Products of more rows than a tile has: all tiles use a block of k before the next one, whose
// codes were expanded once for all of them. Included by matmul_body.h.
#pragma once

// Tiles: Rows × Panels accumulators in registers, k innermost and ascending. operands: the panels'
// lines; count: of k; xs: the tile's rows, at the block's first k.
// fetch: lines of the next block, asked for meanwhile. Only the first tile of a block waits for
// memory; without this it would wait longer than the processor can look ahead, and the others would
// leave the memory idle. A line of codes is asked for every Parts lines of operands; 0: none.
template <typename Step, int Rows, int Panels, int Parts>
inline __attribute__((always_inline)) void run_tile(const typename Step::X* const* xs,
                                                    const std::byte* const* operands, int count,
                                                    const std::byte* const* fetch,
                                                    typename Step::Acc (&edge)[Rows][Panels]) {
  // These copies are loops short enough to be unrolled, which keeps acc in registers; those of the
  // caller may not be.
  typename Step::Acc acc[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) acc[r][p] = edge[r][p];
  }
  int k = 0;
  size_t at = 0, fetched = 0;
  const auto step = [&]() __attribute__((always_inline)) {
    for (int p = 0; p < Panels; ++p) {
      const Line w = load_line(operands[p] + at);
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k, w, acc[r][p]);
    }
    k += Step::kStep, at += sizeof(Line);
  };
  if constexpr (Parts > 0) {
    for (; k + Parts * Step::kStep <= count; fetched += sizeof(Line)) {
      for (int p = 0; p < Panels; ++p) __builtin_prefetch(fetch[p] + fetched);
      for (int i = 0; i < Parts; ++i) step();
    }
  }
  while (k + Step::kStep <= count) step();
  if (k < count) {
    for (int p = 0; p < Panels; ++p) {
      const Line w = load_line(operands[p] + at);
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::last(xs[r] + k, w, acc[r][p]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) edge[r][p] = acc[r][p];
  }
}

// One of several tiles of a block, whose sums lie in memory between blocks.
template <typename Fold, int Rows, int Panels, int Parts>
inline void tile(const InputRows& x, const Fold& fold, const Block& block, int row,
                 const std::byte* const* operands, const std::byte* const* fetch,
                 float (*sums)[kMaxPanels][kPanelWidth]) {
  using Step = typename Fold::Step;
  const typename Step::X* xs[Rows];
  typename Step::Acc edge[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    xs[r] = static_cast<const typename Step::X*>(x[row + r]) + block.k0;
    F32x16 before[Panels];
    for (int p = 0; p < Panels; ++p) before[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template begin<Panels>(block, row + r, before, edge[r]);
  }
  run_tile<Step, Rows, Panels, Parts>(xs, operands, block.count, fetch, edge);
  for (int r = 0; r < Rows; ++r) {
    F32x16 sum[Panels];
    for (int p = 0; p < Panels; ++p) sum[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template end<Panels>(block, row + r, edge[r], sum);
    for (int p = 0; p < Panels; ++p) store(sums[r][p], sum[p]);
  }
}

// Calls tile with `height` as a constant. Tiles of a block are at least two, of nearly equal
// height: none is a single row.
template <typename Fold, int Panels, int Parts, int Rows = 2>
inline void tile_of(int height, const InputRows& x, const Fold& fold, const Block& block, int row,
                    const std::byte* const* operands, const std::byte* const* fetch,
                    float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTileRows) {
    if (height > Rows) {
      return tile_of<Fold, Panels, Parts, Rows + 1>(height, x, fold, block, row, operands, fetch,
                                                    sums);
    }
  }
  tile<Fold, Rows, Panels, Parts>(x, fold, block, row, operands, fetch, sums);
}

// A block for all rows. Tiles fetch the next block, each some panels of it.
template <typename Fold, int Panels, int Parts>
inline void tiles(const InputRows& x, const Fold& fold, const Block& block, int first_row,
                  int num_rows, const std::byte* const* operands, Sums& sums) {
  const int num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    const std::byte* fetch[Panels];
    for (int p = 0; p < Panels; ++p) {
      fetch[p] = p % num_tiles == i ? block.next[p] : block.codes[p];
    }
    tile_of<Fold, Panels, Panels == kTilePanels ? Parts : 0>(
        height, x, fold, block, first_row + row, operands, fetch, sums.values + row);
    row += height;
  }
}

template <typename Fold, typename Codes, int Panels>
inline void all_tiles(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                      Sums& sums) {
  const Fold fold(x, piece);
  const Blocks blocks(piece, 1);
  const int lines = blocks.block_k() / (Codes::kParts * Fold::Step::kStep);
  OperandsOf<typename Fold::Step, Codes> of_panel[Panels];
  for (int index = 0; index < blocks.size(); ++index) {
    const Block block = blocks.template get<Panels>(index);
    const std::byte* operands[Panels];
    for (int p = 0; p < Panels; ++p) operands[p] = of_panel[p].get(block.codes[p], lines);
    tiles<Fold, Panels, Codes::kParts>(x, fold, block, first_row, num_rows, operands, sums);
  }
}
