// SPDX-License-Identifier: Apache-2.0
//
// matmul.h, written once over F32x16. Included inside a region.
#pragma once

// One k of one column panel: acc += x[k] · w[k].
inline F32x16 multiply_one(const float* x, const float* w, F32x16 acc) {
  return fma(set1(*x), load(w), acc);
}

template <int Rows, int Panels>
inline void store_tile(const MatmulArgs& args, int row, int panel,
                       const F32x16 (&acc)[Rows][Panels]) {
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) {
      const int column = (panel + p) * kPanelWidth;
      store_n(args.y + (row + r) * args.y_stride + column, acc[r][p],
              std::min(kPanelWidth, args.w.n - column));
    }
  }
}

// Rows × Panels accumulators in registers, k innermost and ascending.
template <int Rows, int Panels>
inline void tile_f32(const MatmulArgs& args, int row, int panel) {
  const float* x = static_cast<const float*>(args.x) + row * args.x_stride;
  const size_t panel_floats = args.w.panel_bytes() / sizeof(float);
  const float* w = reinterpret_cast<const float*>(args.w.data) + panel * panel_floats;
  F32x16 acc[Rows][Panels];
  for (auto& accs : acc) {
    for (auto& a : accs) a = zero();
  }
  for (int k = 0; k < args.w.k; ++k) {
    for (int p = 0; p < Panels; ++p) {
      const float* weights = w + p * panel_floats + static_cast<size_t>(k) * kPanelWidth;
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = multiply_one(x + r * args.x_stride + k, weights, acc[r][p]);
      }
    }
  }
  store_tile<Rows, Panels>(args, row, panel, acc);
}

template <int Rows, int Panels>
inline void tile_bf16(const MatmulArgs& args, int row, int panel) {
  const Bf16* x = static_cast<const Bf16*>(args.x) + row * args.x_stride;
  const size_t panel_values = args.w.panel_bytes() / sizeof(Bf16);
  const Bf16* w = reinterpret_cast<const Bf16*>(args.w.data) + panel * panel_values;
  F32x16 acc[Rows][Panels];
  for (auto& accs : acc) {
    for (auto& a : accs) a = zero();
  }
  const int whole = args.w.k / 2 * 2;
  for (int k = 0; k < whole; k += 2) {
    for (int p = 0; p < Panels; ++p) {
      const Bf16* weights = w + p * panel_values + static_cast<size_t>(k) * kPanelWidth;
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = multiply_pair(x + r * args.x_stride + k, weights, acc[r][p]);
      }
    }
  }
  if (whole < args.w.k) {  // odd k: the packed partner is zero, x's is made so
    for (int r = 0; r < Rows; ++r) {
      const Bf16 pair[2] = {x[r * args.x_stride + whole], Bf16()};
      for (int p = 0; p < Panels; ++p) {
        const Bf16* weights = w + p * panel_values + static_cast<size_t>(whole) * kPanelWidth;
        acc[r][p] = multiply_pair(pair, weights, acc[r][p]);
      }
    }
  }
  store_tile<Rows, Panels>(args, row, panel, acc);
}

template <int Rows, int Panels>
inline void tile(const MatmulArgs& args, int row, int panel) {
  if (args.w.dtype == Dtype::kBf16) {
    tile_bf16<Rows, Panels>(args, row, panel);
  } else {
    tile_f32<Rows, Panels>(args, row, panel);
  }
}

template <int Panels>
inline void matmul_panels(const MatmulArgs& args, int panel) {
  int row = 0;
  for (; row + kTileRows <= args.m; row += kTileRows) tile<kTileRows, Panels>(args, row, panel);
  for (; row + 2 <= args.m; row += 2) tile<2, Panels>(args, row, panel);
  for (; row < args.m; ++row) tile<1, Panels>(args, row, panel);
}

void matmul(const MatmulArgs& args) {
  int panel = args.first_panel;
  for (; panel + kTilePanels <= args.last_panel; panel += kTilePanels) {
    matmul_panels<kTilePanels>(args, panel);
  }
  for (; panel < args.last_panel; ++panel) matmul_panels<1>(args, panel);
}
