// SPDX-License-Identifier: Apache-2.0
//
// Products with more rows than one tile has. All tiles use the same blocks of k, which stay in the
// first-level cache, before they go on to the next blocks. Codes that are too expensive to be
// expanded by each tile are expanded once for all tiles. Included by body/matmul.h.
#pragma once

// The sums of all rows of a run. Tiles may have one row more than exist.
struct Sums {
  alignas(64) float values[kMaxMatmulRows + kRowUnit][kTilePanels][kPanelWidth];
};

// Consecutive blocks of k that all tiles use before the next ones.
struct Block {
  int word = 0;        // index of the first word of x
  int count = 0;       // number of words in total
  int count_each = 0;  // number of words per fold; the last fold may have fewer
  int index = 0;       // index of the first block
  ScaleLines scales;   // of the first block
  const std::byte* operands[kTilePanels];
  size_t operand_bytes = 0;  // from one block's operands to the next one's
  const std::byte* codes[kTilePanels];
  size_t code_bytes = 0;               // from one block's codes to the next one's
  const std::byte* next[kTilePanels];  // as many later blocks, which are prefetched
  int num_blocks = 1;
  int num_runs = 1;  // number of folds: 1 for chains, else num_blocks
};

// Whether tiles read a block's codes, or the operands to which they were expanded.
template <typename Codes>
inline constexpr bool kReadsCodesDirectly =
    Codes::kParts == 1 || (Codes::kExpandsInTiles && kTileRows > kFewRows);
template <typename Codes>
inline constexpr int kMaxTileRows = kReadsCodesDirectly<Codes> ? kMaxOneTileRows<Codes>
                                    : Codes::kGroups > 1       ? kFewRows
                                                               : kTileRows;
template <typename Codes>
using CodesOfTiles =
    std::conditional_t<kReadsCodesDirectly<Codes>, Codes,
                       std::conditional_t<(Codes::kGroups > 1), DecodedGroups<Codes>, PlainCodes>>;

// Computes one tile of a block. Its sums are in memory between blocks; all loops over rows and
// panels are unrolled, so that within a block everything stays in registers. Meanwhile it
// prefetches lines of a later block. Without that, the first tile of a block would wait longer for
// memory than the processor can look ahead, and memory would be idle during the other tiles.
template <typename Fold, typename Codes, typename Tuned, int Rows, int Panels>
inline void tile(const RowTile<Rows> x, const Fold& fold, const Block& block,
                 const std::byte* const* fetch, float (*sums)[kTilePanels][kPanelWidth]) {
  using Step = typename Fold::Step;
  int left = block.count;
#pragma GCC unroll 1
  for (int i = 0; i < block.num_runs; ++i) {
    const std::byte *operands[Panels], *fetch_now[Panels];
    for (int p = 0; p < Panels; ++p) {
      operands[p] = block.operands[p] + static_cast<size_t>(i) * block.operand_bytes;
      fetch_now[p] = fetch[p] + static_cast<size_t>(i) * block.code_bytes;
    }
    const int index = block.index + i, count = std::min(left, block.count_each);
    const RowTile<Rows> words{x.word(block.word + i * block.count_each, 0)};
    typename Fold::Acc acc[Rows][Panels];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      F32x16 sum[Panels];
#pragma GCC unroll 16
      for (int p = 0; p < Panels; ++p) sum[p] = load(sums[r][p]);
      fold.template begin<Panels>(x, r, index, sum, acc[r]);
    }
    using Read = CodesOfTiles<Codes>;
    constexpr int kLinesOfHint = Codes::kParts / Read::kParts;
    if constexpr (Read::kGroups > 1) {
      run_groups<Read, Tuned, kLinesOfHint>(fold, x, index, words, operands, fetch_now, 0, 0, acc);
    } else {
      run_lines<Step, Read, Tuned, kLinesOfHint>(words, operands, fetch_now, 0, 0,
                                                 count / Read::kParts, acc);
    }
    const auto scales = fold.template scales<Panels>(
        {block.scales.panels, block.scales.at + static_cast<size_t>(i) * block.code_bytes});
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      F32x16 sum[Panels];
#pragma GCC unroll 16
      for (int p = 0; p < Panels; ++p) sum[p] = load(sums[r][p]);
      fold.template end<Panels>(x, r, index, scales, acc[r], sum);
#pragma GCC unroll 16
      for (int p = 0; p < Panels; ++p) store(sums[r][p], sum[p]);
    }
    left -= count;
  }
}

// Calls tile with `height` as a template constant.
template <typename Fold, typename Codes, typename Tuned, int Panels, int Rows>
inline void tile_of(int height, const std::byte* words, const Fold& fold, const Block& block,
                    const std::byte* const* fetch, float (*sums)[kTilePanels][kPanelWidth]) {
  if constexpr (Rows < kMaxTileRows<Codes>) {
    if (height > Rows) {
      return tile_of<Fold, Codes, Tuned, Panels, Rows + kRowUnit>(height, words, fold, block, fetch,
                                                                  sums);
    }
  }
  tile<Fold, Codes, Tuned, Rows, Panels>({words}, fold, block, fetch, sums);
}

// Computes a block for all rows. Each tile prefetches some panels of a later block.
template <typename Fold, typename Codes, typename Tuned, int Panels>
inline void tile_rows(const RowTiles& x, const Fold& fold, const Block& block, Sums& sums) {
  const int num_tiles = x.tiles.count();
  for (int i = 0; i < num_tiles; ++i) {
    const std::byte* fetch[Panels];
    for (int p = 0; p < Panels; ++p) {
      const bool mine = p % num_tiles == i;
      fetch[p] = mine ? block.next[p] : block.codes[p];
      if (!mine) continue;
      // The scales of a block are one line more than the lines of codes that the tile reads.
      for (int b = 1; b <= block.num_blocks; ++b) {
        prefetch_line<Tuned>(block.next[p],
                             static_cast<size_t>(b) * block.code_bytes - sizeof(Line));
      }
    }
    tile_of<Fold, Codes, Tuned, Panels, lowest_tile(kMaxTileRows<Codes>)>(
        x.tiles.height(i), x.tile(i), fold, block, fetch, sums.values + x.tiles.first(i));
  }
}

template <typename Fold, typename Codes, typename Tuned, int Panels>
inline void all_tiles(const RowTiles& x, const Piece& piece, Sums& sums) {
  using Step = typename Fold::Step;
  const Cut& cut = piece.cut;
  const Fold fold(cut);
  OperandsOf<Step, Codes, kReadsCodesDirectly<Codes>> operands[Panels];
  const size_t operand_bytes = operands[0].bytes_of_block(cut);
  // As many blocks of a panel as fit the first-level cache.
  const int at_once = std::max(1, static_cast<int>(kOperandBytes / operand_bytes));
  const int ahead = std::max(at_once, cut.blocks_ahead(Panels));
  for (int row = 0; row < x.tiles.padded_rows(); ++row) {
    for (int p = 0; p < Panels; ++p) store(sums.values[row][p], zero());
  }
  Block block;
  const int block_words = cut.block_k / Step::kStep, all_words = cut.num_words<Step>();
  block.count_each = Fold::kChains ? at_once * block_words : block_words;
  block.code_bytes = cut.block_bytes;
  block.operand_bytes = operand_bytes;
  for (int index = 0; index < cut.num_blocks; index += at_once) {
    const int num_blocks = std::min(at_once, cut.num_blocks - index), next = index + ahead;
    block.index = index;
    block.word = index * block_words;
    block.count = std::min(num_blocks * block_words, all_words - block.word);
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
    tile_rows<Fold, Codes, Tuned, Panels>(x, fold, block, sums);
  }
}
