// SPDX-License-Identifier: Apache-2.0
//
// Threads divide products by panels of the weights: each panel is read by one thread only, which is
// what counts with few rows, and its results are whole sums. With fewer panels than threads they
// divide the rows instead. Either way an element is the same chain of additions, so bits do not
// depend on the choice.
#include "model/parts/compute.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::model {
namespace {

using kernels::PackedMatrix;
using kernels::PackedShape;

// Threads take ranges of rows, here and in all row-wise steps. So a thread gets about the same rows
// in every step, and finds them in its caches.
constexpr int64_t kRowsPerChunk = 16;

// Points to `source` itself if it needs no cast, else to the memory for the cast rows.
Rows place_rows(const PackedShape& w, const SourceRows& source, Scratch& scratch) {
  WIDEEP_CHECK_EQ(source.width, w.k);
  Rows rows{source.rows, source.num_rows, source.width, w.format};
  if (needs_cast(w, source.dtype)) {
    const size_t bytes = operand_bytes(w);
    rows.input = {scratch.get<std::byte>(static_cast<size_t>(source.num_rows) * bytes), bytes};
  }
  return rows;
}

std::byte* memory_of(const Rows& rows) {
  return static_cast<std::byte*>(const_cast<void*>(rows.input.first));
}

}  // namespace

bool needs_cast(const PackedShape& w, Dtype dtype) {
  return kernels::takes_quantized_rows(w.format) || dtype != kernels::row_dtype(w.format);
}

size_t operand_bytes(const PackedShape& w) {
  if (!kernels::takes_quantized_rows(w.format)) {
    return static_cast<size_t>(w.k) * dtype_bytes(kernels::row_dtype(w.format));
  }
  return kernels::quantized_row_shape(w).bytes();
}

void cast_rows_to(const kernels::Kernels& kernels, const PackedShape& w, const SourceRows& source,
                  std::byte* out) {
  WIDEEP_CHECK(w.format != kernels::WeightFormat::kF32);
  const size_t bytes = operand_bytes(w);
  for (int row = 0; row < source.num_rows; ++row) {
    const void* x = source.rows[row];
    std::byte* y = out + static_cast<size_t>(row) * bytes;
    if (kernels::takes_quantized_rows(w.format)) {
      kernels.quantize_row(source.dtype, x, kernels::quantized_row_shape(w), y);
    } else {
      kernels.to_bf16(static_cast<const float*>(x), source.width, reinterpret_cast<Bf16*>(y));
    }
  }
}

Rows cast_rows(const kernels::Kernels& kernels, const PackedShape& w, const SourceRows& source,
               Scratch& scratch) {
  const Rows rows = place_rows(w, source, scratch);
  if (needs_cast(w, source.dtype)) {
    cast_rows_to(kernels, w, source, memory_of(rows));
  }
  return rows;
}

Rows Compute::cast(const PackedShape& w, const SourceRows& source, Scratch& scratch) const {
  const Rows rows = place_rows(w, source, scratch);
  if (needs_cast(w, source.dtype)) {
    std::byte* const out = memory_of(rows);
    const size_t bytes = operand_bytes(w);
    pool_.parallel_for_ranges(source.num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
      cast_rows_to(kernels_, w, source.part(begin, end), out + static_cast<size_t>(begin) * bytes);
    });
  }
  return rows;
}

kernels::MatmulArgs matmul_args(const Rows& x, const PackedMatrix& w, float* y, size_t y_stride) {
  WIDEEP_CHECK_EQ(x.width, w.k());
  WIDEEP_CHECK(x.for_format == w.shape.format);
  return {.m = x.num_rows,
          .x = x.input,
          .w = w,
          .first_panel = 0,
          .last_panel = w.shape.num_panels(),
          .y = {y, y_stride * sizeof(float)}};
}

void Compute::matmul(const Rows& x, const PackedMatrix& w, float* y, size_t y_stride) const {
  const Product product{&w, y, y_stride, all_panels(w)};
  matmul(x, std::span(&product, 1));
}

int panels_at_once(const PackedShape& w, int max_rows, int num_matrices) {
  constexpr int kTile = 4;  // panels of the widest tile of the kernels
  if (max_rows > 1) return kTile / num_matrices;
  // Single rows are bound by memory: about as many bytes as a core reads in a microsecond.
  constexpr size_t kBytes = 40 * 1024;
  const size_t panels = kBytes / (w.panel_bytes() * static_cast<size_t>(num_matrices));
  return static_cast<int>(std::clamp<size_t>(panels, 1, 2 * kTile));
}

// The threads share one list: the panels of all products, one product after the other. So small
// products do not leave threads without work. args.next lets the kernel prefetch the first panel of
// the next product.
void Compute::matmul(const Rows& x, std::span<const Product> products) const {
  if (x.num_rows == 0) return;
  int num_panels = 0;
  for (const Product& product : products) num_panels += product.panels.count();
  if (num_panels < pool_.num_threads() && x.num_rows > kRowsPerChunk) {
    return matmul_rows(x, products);
  }
  const auto run = [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // index of the product's first panel in the list
    for (size_t i = 0; i < products.size(); ++i) {
      const Product& product = products[i];
      const int64_t panels = product.panels.count();
      const int64_t from = std::max(begin, first), to = std::min(end, first + panels);
      if (from < to) {
        kernels::MatmulArgs args = matmul_args(x, *product.w, product.y, product.y_stride);
        args.first_panel = product.panels.first + static_cast<int>(from - first);
        args.last_panel = product.panels.first + static_cast<int>(to - first);
        args.bias = product.bias;
        if (to == first + panels && i + 1 < products.size()) {
          args.next = products[i + 1].w->panel(products[i + 1].panels.first);
        }
        kernels_.matmul(args);
      }
      first += panels;
    }
  };
  const int unit = panels_at_once(products[0].w->shape, x.num_rows, 1);
  // Smaller units if there are not enough panels to give every thread a whole unit.
  pool_.parallel_for_ranges(num_panels, std::clamp(num_panels / pool_.num_threads(), 1, unit), run);
}

// Products of so few panels that the threads share the rows instead.
void Compute::matmul_rows(const Rows& x, std::span<const Product> products) const {
  pool_.parallel_for_ranges(x.num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    Rows part = x;
    part.num_rows = static_cast<int>(end - begin);
    part.input = x.input.from(static_cast<int>(begin));
    for (const Product& product : products) {
      kernels::MatmulArgs args =
          matmul_args(part, *product.w, product.y + static_cast<size_t>(begin) * product.y_stride,
                      product.y_stride);
      args.first_panel = product.panels.first;
      args.last_panel = product.panels.last;
      args.bias = product.bias;
      kernels_.matmul(args);
    }
  });
}

void Compute::rms_norm(const float* x, int num_rows, std::span<const float> weight, float eps,
                       float* y) const {
  const auto width = static_cast<int64_t>(weight.size());
  pool_.parallel_for_ranges(num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels_.rms_norm(x + row * width, weight.data(), eps, static_cast<int>(width),
                        y + row * width);
    }
  });
}

}  // namespace wideep::model
