// SPDX-License-Identifier: Apache-2.0
//
// Products of more rows than a tile has: all tiles use a block of k before the next one, whose
// codes were expanded once for all of them. Included by matmul_body.h.
#pragma once

// Tiles: Rows × Panels accumulators in registers, k innermost and ascending. operands: the panels'
// lines; count: of k; xs: the tile's rows, at the block's first k.
// fetch: lines of a block to come, asked for meanwhile. Only the first tile of a block waits for
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

// A block of k as the tiles read it; or several, as one.
struct Block {
  int k0 = 0;
  int count = 0;  // of k
  int index = 0;  // of grouped formats: the group
  ScaleLines scales;
  const std::byte* operands[kMaxPanels];
  const std::byte* codes[kMaxPanels];
  const std::byte* next[kMaxPanels];  // a block to fetch meanwhile
  int num_blocks = 1;                 // that lie there
  size_t bytes = 0;                   // of them, in each panel
};

// One of several tiles of a block, whose sums lie in memory between blocks.
template <typename Fold, int Rows, int Panels, int Parts>
inline void tile(const InputRows& x, const Fold& fold, const Block& block, int row,
                 const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  using Step = typename Fold::Step;
  using X = typename Step::X;
  const X* xs[Rows];
  typename Step::Acc edge[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    const X* x_row = static_cast<const X*>(x[row + r]);
    xs[r] = x_row + block.k0;
    F32x16 before[Panels];
    for (int p = 0; p < Panels; ++p) before[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template begin<Panels>(x_row, block.index, before, edge[r]);
  }
  run_tile<Step, Rows, Panels, Parts>(xs, block.operands, block.count, fetch, edge);
  for (int r = 0; r < Rows; ++r) {
    F32x16 sum[Panels];
    for (int p = 0; p < Panels; ++p) sum[p] = block.k0 == 0 ? zero() : load(sums[r][p]);
    fold.template end<Panels>(static_cast<const X*>(x[row + r]), block.index, block.scales, edge[r],
                              sum);
    for (int p = 0; p < Panels; ++p) store(sums[r][p], sum[p]);
  }
}

// Calls tile with `height` as a constant. Tiles of a block are at least two, of nearly equal
// height: none is a single row.
template <typename Fold, int Panels, int Parts, int Rows = 2>
inline void tile_of(int height, const InputRows& x, const Fold& fold, const Block& block, int row,
                    const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTileRows) {
    if (height > Rows) {
      return tile_of<Fold, Panels, Parts, Rows + 1>(height, x, fold, block, row, fetch, sums);
    }
  }
  tile<Fold, Rows, Panels, Parts>(x, fold, block, row, fetch, sums);
}

// A block for all rows. Tiles fetch a block to come, each some panels of it.
template <typename Fold, int Panels, int Parts>
inline void tiles(const InputRows& x, const Fold& fold, const Block& block, int first_row,
                  int num_rows, Sums& sums) {
  const int num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    const std::byte* fetch[Panels];
    for (int p = 0; p < Panels; ++p) {
      const bool mine = p % num_tiles == i;
      fetch[p] = mine ? block.next[p] : block.codes[p];
      if (!mine) continue;
      // Scales make each block a line longer than the lines that go by.
      for (int b = 1; b <= block.num_blocks; ++b) {
        __builtin_prefetch(block.next[p] + block.bytes - static_cast<size_t>(b) * sizeof(Line));
      }
    }
    tile_of<Fold, Panels, Panels == kTilePanels ? Parts : 0>(
        height, x, fold, block, first_row + row, fetch, sums.values + row);
    row += height;
  }
}

// Blocks that tiles take at once. Where a chain goes on from block to block, more of them leave and
// fetch the sums less often.
template <typename Fold, typename Codes>
inline int blocks_at_once(const Cut& cut) {
  if constexpr (Fold::kChains && Codes::kParts > 1) return kMaxDecodedK / cut.block_k;
  return 1;
}

template <typename Fold, typename Codes, int Panels>
inline void all_tiles(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                      Sums& sums) {
  const Cut& cut = piece.cut;
  const Fold fold(cut);
  const int at_once = blocks_at_once<Fold, Codes>(cut);
  const int ahead = std::max(at_once, cut.blocks_ahead());
  OperandsOf<typename Fold::Step, Codes> operands[Panels];
  Block block;
  for (int index = 0; index < cut.num_blocks; index += at_once) {
    const int num_blocks = std::min(at_once, cut.num_blocks - index), next = index + ahead;
    block.index = index;
    block.k0 = index * cut.block_k;
    block.count =
        index + num_blocks <= cut.whole_blocks() ? num_blocks * cut.block_k : cut.k - block.k0;
    block.num_blocks = num_blocks;
    block.bytes = static_cast<size_t>(num_blocks) * cut.block_bytes;
    block.scales = {piece.panels, cut.scales_at(index)};
    for (int p = 0; p < Panels; ++p) {
      block.codes[p] = piece.panels[p] + cut.block_at(index);
      block.operands[p] = operands[p].get(cut, block.codes[p], num_blocks);
      block.next[p] = next < cut.num_blocks
                          ? piece.panels[p] + cut.block_at(next)
                          : piece.next_panels[p] + cut.block_at(next - cut.num_blocks);
    }
    tiles<Fold, Panels, Codes::kParts>(x, fold, block, first_row, num_rows, sums);
  }
}
