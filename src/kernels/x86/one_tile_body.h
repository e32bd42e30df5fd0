// SPDX-License-Identifier: Apache-2.0
//
// Products of so few rows that they make one tile: each line of codes is read once, expanded in
// registers and multiplied there. Nothing but reading the weights takes long, so that reading never
// waits for anything: sums stay in registers from the first block to the last, and lines are asked
// for long before they are needed, the next piece's at the end of this one.
// Included by matmul_body.h.
#pragma once

// How far ahead of its use a panel's line is fetched. Four panels make 8 KiB under way, which at
// 150 ns is what a core can read.
inline constexpr size_t kFetchAhead = 2048;

// A whole block of `lines` lines of codes. xs: the rows, at the block's first k.
template <typename Step, typename Codes, int Rows, int Panels>
inline __attribute__((always_inline)) void run_codes(const typename Step::X* const* xs,
                                                     const Block& block, int lines,
                                                     typename Step::Acc (&edge)[Rows][Panels]) {
  constexpr int kLineK = Codes::kParts * Step::kStep;
  // Copies with fixed bounds, which keep acc in registers.
  typename Step::Acc acc[Rows][Panels];
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) acc[r][p] = edge[r][p];
  }
  // Scales are a line before or behind those of codes.
  const size_t scales_at = Codes::kFirstLine == 0 ? block.bytes - sizeof(Line) : 0;
  for (int p = 0; p < Panels; ++p) __builtin_prefetch(block.next[p] + scales_at);
  int k = 0;
  size_t at = Codes::kFirstLine;
#pragma GCC unroll 1
  for (int group = 0; group < Codes::kGroups; ++group) {
    typename Codes::Group scales[Panels];
    for (int p = 0; p < Panels; ++p) scales[p] = Codes(block.codes[p]).group(group);
    for (int i = 0; i < lines / Codes::kGroups; ++i, k += kLineK, at += sizeof(Line)) {
      for (int p = 0; p < Panels; ++p) {
        __builtin_prefetch(block.next[p] + at);
        Line w[Codes::kParts];
        Codes::expand(load_line(block.codes[p] + at), scales[p], w);
        for (int part = 0; part < Codes::kParts; ++part) {
          for (int r = 0; r < Rows; ++r) {
            acc[r][p] = Step::step(xs[r] + k + part * Step::kStep, w[part], acc[r][p]);
          }
        }
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) edge[r][p] = acc[r][p];
  }
}

// The block at the end of k that is not whole.
template <typename Step, typename Codes, int Rows, int Panels>
inline __attribute__((noinline)) void run_rest(const typename Step::X* const* xs,
                                               const Block& block, int lines,
                                               typename Step::Acc (&acc)[Rows][Panels]) {
  OperandsOf<Step, Codes> operands;
  for (int p = 0; p < Panels; ++p) {
    const std::byte* line = operands.get(block.codes[p], lines);
    int k = 0;
    for (; k + Step::kStep <= block.count; k += Step::kStep, line += sizeof(Line)) {
      for (int r = 0; r < Rows; ++r) acc[r][p] = Step::step(xs[r] + k, load_line(line), acc[r][p]);
    }
    if (k == block.count) continue;
    for (int r = 0; r < Rows; ++r) acc[r][p] = Step::last(xs[r] + k, load_line(line), acc[r][p]);
  }
}

template <typename Fold, typename Codes, int Rows, int Panels>
inline void one_tile(const InputRows& x, const Piece& piece, int row, Sums& sums) {
  using Step = typename Fold::Step;
  const Fold fold(x, piece);
  const Blocks blocks(piece, kFetchAhead);
  const int lines = blocks.block_k() / (Codes::kParts * Step::kStep);
  F32x16 sum[Rows][Panels];
  for (auto& of_row : sum) {
    for (F32x16& s : of_row) s = zero();
  }
  for (int index = 0; index < blocks.size(); ++index) {
    const Block block = blocks.template get<Panels>(index);
    const typename Step::X* xs[Rows];
    typename Step::Acc acc[Rows][Panels];
    for (int r = 0; r < Rows; ++r) {
      xs[r] = static_cast<const typename Step::X*>(x[row + r]) + block.k0;
      fold.template begin<Panels>(block, row + r, sum[r], acc[r]);
    }
    if (block.count == blocks.block_k()) {
      run_codes<Step, Codes>(xs, block, lines, acc);
    } else {
      run_rest<Step, Codes>(xs, block, lines, acc);
    }
    for (int r = 0; r < Rows; ++r) fold.template end<Panels>(block, row + r, acc[r], sum[r]);
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) store(sums.values[r][p], sum[r][p]);
  }
}

// Calls one_tile with num_rows as a constant.
template <typename Fold, typename Codes, int Panels, int Rows = 1>
inline void one_tile_of(int num_rows, const InputRows& x, const Piece& piece, int row, Sums& sums) {
  if constexpr (Rows < kTileRows) {
    if (num_rows > Rows) {
      return one_tile_of<Fold, Codes, Panels, Rows + 1>(num_rows, x, piece, row, sums);
    }
  }
  one_tile<Fold, Codes, Rows, Panels>(x, piece, row, sums);
}
