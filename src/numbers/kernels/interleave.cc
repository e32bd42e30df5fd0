// SPDX-License-Identifier: Apache-2.0
#include "kernels/interleave.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

constexpr size_t kWordBytes = 4;  // a float32 or a pair of bf16

// All instruction sets produce the same bytes, so callers need not choose.
const Kernels& best_kernels() {
  static const Kernels& best = *[] {
    const auto selected = select_kernels(std::getenv("WIDEEP_ISA"));
    return selected.ok() ? *selected : all_kernels().back();
  }();
  return best;
}

int words_of_row(const PackedShape& shape) {
  return static_cast<int>(shape.panel_bytes() / (kPanelWidth * kWordBytes));
}

// Interleaves panels from first_row on, by way of a buffer that copy(row, out) fills row by row.
// Missing rows of the last panel, and padding of rows, are zero.
template <typename Copy>
void interleave_copied(const PackedShape& shape, int first_row, std::byte* out, Copy copy) {
  const int num_words = words_of_row(shape);
  const size_t row_bytes = static_cast<size_t>(num_words) * kWordBytes;
  std::vector<std::byte> rows(kPanelWidth * row_bytes);
  for (int begin = first_row; begin < shape.n; begin += kPanelWidth) {
    const int count = std::min(kPanelWidth, shape.n - begin);
    if (count < kPanelWidth) std::fill(rows.begin(), rows.end(), std::byte{0});
    for (int i = 0; i < count; ++i) copy(begin + i, rows.data() + i * row_bytes);
    best_kernels().interleave_rows(
        rows.data(), row_bytes, num_words,
        out + static_cast<size_t>(begin / kPanelWidth) * shape.panel_bytes(), nullptr);
  }
}

// Reads one byte per 32 KiB, so that the pages are mapped before they are prefetched: a prefetch of
// an unmapped page does nothing. A page fault maps 64 KiB of a file by default (fault-around).
void fault_in(const std::byte* bytes, size_t num_bytes) {
  constexpr size_t kStretch = size_t{32} << 10;
  for (size_t i = 0; i < num_bytes; i += kStretch) {
    [[maybe_unused]] const auto touched = static_cast<const volatile std::byte&>(bytes[i]);
  }
}

}  // namespace

void interleave(const PackedShape& shape, const std::byte* rows, std::byte* out) {
  const size_t element = shape.format == WeightFormat::kF32 ? sizeof(float) : sizeof(Bf16);
  const size_t row_bytes = static_cast<size_t>(shape.k) * element;
  int row = 0;
  if (row_bytes % kWordBytes == 0) {
    const size_t panel_rows_bytes = kPanelWidth * row_bytes;
    for (; row + kPanelWidth <= shape.n; row += kPanelWidth) {
      const std::byte* panel_rows = rows + row * row_bytes;
      const bool more = row + 2 * kPanelWidth <= shape.n;
      if (more) fault_in(panel_rows + panel_rows_bytes, panel_rows_bytes);
      best_kernels().interleave_rows(
          panel_rows, row_bytes, words_of_row(shape),
          out + static_cast<size_t>(row / kPanelWidth) * shape.panel_bytes(),
          more ? panel_rows + panel_rows_bytes : nullptr);
    }
  }
  interleave_copied(shape, row, out, [&](int index, std::byte* copied) {
    std::memcpy(copied, rows + index * row_bytes, row_bytes);
  });
}

void interleave_rounded(const PackedShape& shape, const float* rows, std::byte* out) {
  interleave_copied(shape, 0, out, [&](int index, std::byte* copied) {
    best_kernels().to_bf16(rows + static_cast<size_t>(index) * shape.k, shape.k,
                           reinterpret_cast<Bf16*>(copied));
  });
}

}  // namespace wideep::kernels
