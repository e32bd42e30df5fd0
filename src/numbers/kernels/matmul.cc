// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>

namespace wideep::kernels {

namespace {

#if defined(__x86_64__)
// The family number of an AMD processor: Zen 4 is 25, Zen 5 is 26. 0: another vendor. Families from
// 15 on are stored as 15 plus an extended family (AMD64 manual, CPUID function 1).
int amd_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return 0;
  char maker[12];
  std::memcpy(maker, &b, 4);
  std::memcpy(maker + 4, &d, 4);
  std::memcpy(maker + 8, &c, 4);
  if (std::memcmp(maker, "AuthenticAMD", sizeof(maker)) != 0) return 0;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = a >> 8 & 0xf, more = a >> 20 & 0xff;
  return static_cast<int>(family == 0xf ? family + more : family);
}
#endif

}  // namespace

Tuning best_tuning() {
#if defined(__x86_64__)
  static const Tuning best = amd_family() >= 26 ? Tuning::kZen5 : Tuning::kZen4;
  return best;
#else
  return Tuning::kZen4;
#endif
}

std::string MatmulChoice::to_string() const {
  return fmt::format("tiles of {} × {} columns, {} rows and {} of k at a time", tile_rows,
                     tile_panels * kPanelWidth, rows, block_k);
}

MatmulChoice choose_matmul(const PackedShape& w, int tile_rows, int tile_panels) {
  // Per panel: blocks of two panels, the tile's rows and all sums fit a 32 KiB first-level cache.
  constexpr int kBlockBytes = 4 * 1024;
  MatmulChoice choice{.tile_rows = tile_rows, .tile_panels = tile_panels, .rows = kMaxMatmulRows};
  const bool plain = w.format == WeightFormat::kF32 || w.format == WeightFormat::kBf16;
  if (!plain) {
    choice.block_k = w.block_k();
  } else {
    const int bytes = kPanelWidth * (w.format == WeightFormat::kF32 ? 4 : 2);
    choice.block_k = std::min(w.block_k(), kBlockBytes / bytes);
  }
  return choice;
}

}  // namespace wideep::kernels
