// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::kernels {

std::string MatmulChoice::to_string() const {
  return fmt::format("tiles of {} × {} columns, {} rows and {} of k at a time", tile_rows,
                     tile_panels * kPanelWidth, rows, block_k);
}

MatmulChoice choose_matmul(const PackedShape& w, int tile_rows, int tile_panels) {
  // Four panels of this many bytes a k fill two thirds of a 48 KiB first-level cache, beside the
  // rows of a tile.
  constexpr int kBlockBytes = 32 * 1024;
  MatmulChoice choice{.tile_rows = tile_rows, .tile_panels = tile_panels, .rows = kMaxMatmulRows};
  const bool plain = w.format == WeightFormat::kF32 || w.format == WeightFormat::kBf16;
  if (!plain) {
    choice.block_k = w.block_k();
  } else {
    const int bytes = kPanelWidth * (w.format == WeightFormat::kF32 ? 4 : 2);
    choice.block_k = std::min(w.block_k(), kBlockBytes / (4 * bytes));
  }
  return choice;
}

}  // namespace wideep::kernels
