// SPDX-License-Identifier: Apache-2.0
//
// Rows of stored tensors on their way to where the kernels read them, a range at a time.
//
// Thread safety: ranges may be loaded by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/safetensors.h"
#include "kernels/packed_matrix.h"

namespace wideep::weights {

// Rows [begin, end) of a tensor of shape [n, k] as float32 or bf16.
void copy_rows(const formats::TensorEntry& entry, int64_t begin, int64_t end, Dtype dtype,
               std::byte* out);

// Tensors of shape [n_i, k], one below the other, as one matrix.
class StackedRows {
 public:
  explicit StackedRows(int k) : k_(k) {}

  // REQUIRES: the entry outlives this and has k columns; its dtype is F32, BF16 or F16.
  void add(const formats::TensorEntry& entry);

  // Packs panels [begin, end). out: where the whole matrix belongs.
  // REQUIRES: begin is a multiple of panels_together(shape), and end too or the last panel's.
  void pack(const kernels::PackedShape& shape, int64_t begin, int64_t end, std::byte* out) const;

  // How many panels share a scale when float values are quantised, and are therefore packed
  // together.
  static int64_t panels_together(const kernels::PackedShape& shape);

 private:
  struct Part {
    const formats::TensorEntry* entry;
    int64_t first_row;
    int64_t end_row;
  };

  void pack_floats(const kernels::PackedShape& shape, int64_t first_row, int64_t end_row,
                   std::byte* out) const;
  const Part& part_of(int64_t row) const;

  int k_;
  std::vector<Part> parts_;
};

}  // namespace wideep::weights
