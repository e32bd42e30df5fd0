// SPDX-License-Identifier: Apache-2.0
//
// Products of more rows than a tile has: all tiles use a block of k before the next one, whose
// codes were expanded once for all of them. Included by matmul_body.h.
#pragma once

// Several blocks of k as the tiles read them.
struct Block {
  int k0 = 0;
  int count = 0;       // of k in all
  int count_each = 0;  // of k in each run, but the last may have less
  int index = 0;       // of the first
  ScaleLines scales;   // of the first
  const std::byte* operands[kMaxPanels];
  size_t operand_bytes = 0;  // from one block's operands to the next one's
  const std::byte* codes[kMaxPanels];
  size_t code_bytes = 0;              // likewise
  const std::byte* next[kMaxPanels];  // as many blocks to fetch meanwhile
  int num_blocks = 1;
  int num_runs = 1;  // of k, after each of which the fold is told: one for chains, else num_blocks
};

// A block's lines for a tile: Rows × Panels accumulators in registers, k innermost and ascending.
// fetch: lines of a block to come, asked for meanwhile. Only the first tile of a block waits for
// memory; without this it would wait longer than the processor can look ahead, and the others would
// leave the memory idle. A line of codes is asked for every Parts lines of operands; 0: none.
template <typename Step, typename Tuned, int Rows, int Panels, int Parts>
inline __attribute__((always_inline)) void tile_lines(const typename Step::X* const (&xs)[Rows],
                                                      int k, int count,
                                                      const std::byte* const (&operands)[Panels],
                                                      const std::byte* const (&fetch)[Panels],
                                                      typename Step::Acc (&acc)[Rows][Panels]) {
  const int end = k + count;
  size_t at = 0, fetched = 0;
  const auto step = [&]() __attribute__((always_inline)) {
    for (int p = 0; p < Panels; ++p) {
      const Line w = load_line(operands[p] + at);
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k, w, acc[r][p]);
    }
    k += Step::kStep, at += sizeof(Line);
  };
  if constexpr (Parts > 0) {
    for (; k + Parts * Step::kStep <= end; fetched += sizeof(Line)) {
      for (int p = 0; p < Panels; ++p) fetch_line<Tuned>(fetch[p], fetched);
      for (int i = 0; i < Parts; ++i) step();
    }
  }
  while (k + Step::kStep <= end) step();
  if (k == end) return;
  for (int p = 0; p < Panels; ++p) {
    const Line w = load_line(operands[p] + at);
    for (int r = 0; r < Rows; ++r) acc[r][p] = Step::last(xs[r] + k, w, acc[r][p]);
  }
}

// One of several tiles of some blocks, whose sums lie in memory between blocks. All loops over rows
// and panels are unrolled, so that nothing else does.
template <typename Fold, typename Tuned, int Rows, int Panels, int Parts>
inline void tile(const InputRows& x, const Fold& fold, const Block& block, int row,
                 const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  using Step = typename Fold::Step;
  using X = typename Step::X;
  const X* xs[Rows];
  for (int r = 0; r < Rows; ++r) xs[r] = static_cast<const X*>(x[row + r]);
  int left = block.count;
#pragma GCC unroll 1
  for (int i = 0; i < block.num_runs; ++i) {
    const std::byte *operands[Panels], *fetch_now[Panels];
    for (int p = 0; p < Panels; ++p) {
      operands[p] = block.operands[p] + static_cast<size_t>(i) * block.operand_bytes;
      fetch_now[p] = fetch[p] + static_cast<size_t>(i) * block.code_bytes;
    }
    const int index = block.index + i, count = std::min(left, block.count_each);
    const int k0 = block.k0 + i * block.count_each;
    typename Step::Acc acc[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      F32x16 sum[Panels];
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) sum[p] = load(sums[r][p]);
      fold.template begin<Panels>(xs[r], index, sum, acc[r]);
    }
    tile_lines<Step, Tuned, Rows, Panels, Parts>(xs, k0, count, operands, fetch_now, acc);
    const auto scales = fold.template scales<Panels>(
        {block.scales.panels, block.scales.at + static_cast<size_t>(i) * block.code_bytes});
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      F32x16 sum[Panels];
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) sum[p] = load(sums[r][p]);
      fold.template end<Panels>(xs[r], index, scales, acc[r], sum);
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) store(sums[r][p], sum[p]);
    }
    left -= count;
  }
}

// Calls tile with `height` as a constant. Tiles of a block are at least two, of nearly equal
// height: none is a single row.
template <typename Fold, typename Tuned, int Panels, int Parts, int Rows = 2>
inline void tile_of(int height, const InputRows& x, const Fold& fold, const Block& block, int row,
                    const std::byte* const* fetch, float (*sums)[kMaxPanels][kPanelWidth]) {
  if constexpr (Rows < kTileRows) {
    if (height > Rows) {
      return tile_of<Fold, Tuned, Panels, Parts, Rows + 1>(height, x, fold, block, row, fetch,
                                                           sums);
    }
  }
  tile<Fold, Tuned, Rows, Panels, Parts>(x, fold, block, row, fetch, sums);
}

// A block for all rows. Tiles fetch a block to come, each some panels of it.
template <typename Fold, typename Tuned, int Panels, int Parts>
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
        fetch_line<Tuned>(block.next[p], static_cast<size_t>(b) * block.code_bytes - sizeof(Line));
      }
    }
    tile_of<Fold, Tuned, Panels, Panels == kTilePanels ? Parts : 0>(
        height, x, fold, block, first_row + row, fetch, sums.values + row);
    row += height;
  }
}

// Blocks that are expanded at once.
template <typename Codes>
inline int blocks_at_once(const Cut& cut) {
  return Codes::kParts == 1 ? 1 : std::max(1, kMaxDecodedK / cut.block_k);
}

template <typename Fold, typename Codes, typename Tuned, int Panels>
inline void all_tiles(const InputRows& x, const Piece& piece, int first_row, int num_rows,
                      Sums& sums) {
  const Cut& cut = piece.cut;
  const Fold fold(cut);
  const int at_once = blocks_at_once<Codes>(cut);
  const int ahead = std::max(at_once, cut.blocks_ahead(Panels));
  OperandsOf<typename Fold::Step, Codes> operands[Panels];
  for (int row = 0; row < num_rows; ++row) {
    for (int p = 0; p < Panels; ++p) store(sums.values[row][p], zero());
  }
  Block block;
  block.count_each = Fold::kChains ? at_once * cut.block_k : cut.block_k;
  block.code_bytes = cut.block_bytes;
  block.operand_bytes = operands[0].bytes_of_block(cut);
  for (int index = 0; index < cut.num_blocks; index += at_once) {
    const int num_blocks = std::min(at_once, cut.num_blocks - index), next = index + ahead;
    block.index = index;
    block.k0 = index * cut.block_k;
    block.count =
        index + num_blocks <= cut.whole_blocks ? num_blocks * cut.block_k : cut.k - block.k0;
    block.num_blocks = num_blocks;
    block.num_runs = Fold::kChains ? 1 : num_blocks;
    block.scales = {piece.panels, cut.scales_at(index)};
    for (int p = 0; p < Panels; ++p) {
      block.codes[p] = piece.panels[p] + cut.block_at(index);
      block.operands[p] = operands[p].get(cut, block.codes[p], num_blocks);
      block.next[p] = next < cut.num_blocks
                          ? piece.panels[p] + cut.block_at(next)
                          : piece.next_panels[p] + cut.block_at(next - cut.num_blocks);
    }
    tiles<Fold, Tuned, Panels, Codes::kParts>(x, fold, block, first_row, num_rows, sums);
  }
}
