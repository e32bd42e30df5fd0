// SPDX-License-Identifier: Apache-2.0
//
// Test and benchmark input: a block of queries over a cache with random rows.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"

namespace wideep::kernels {

struct AttentionShape {
  Dtype cache_dtype = Dtype::kBf16;
  CacheForm form = CacheForm::kPanels;
  int num_tokens = 1;
  int num_heads = 1;
  int first_position = 0;
  int key_dim = 64;
  int value_dim = 64;  // kRows: at most key_dim
  int window = 0;
  int chunk = 0;
  bool sinks = false;
};

// Positions that were not stored have garbage (NaN), which must not affect any result.
class AttentionCase {
 public:
  AttentionCase(const Kernels& writer, const AttentionShape& shape, uint32_t seed) : rng_(seed) {
    const int positions = shape.first_position + shape.num_tokens;
    args = {.num_tokens = shape.num_tokens,
            .num_heads = shape.num_heads,
            .first_position = shape.first_position,
            .key_dim = shape.key_dim,
            .value_dim = shape.value_dim,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim)),
            .window = shape.window,
            .chunk = shape.chunk,
            .q_token_stride = static_cast<size_t>(shape.num_heads * shape.key_dim),
            .q_head_stride = static_cast<size_t>(shape.key_dim),
            .out_token_stride = static_cast<size_t>(shape.num_heads * shape.value_dim),
            .out_head_stride = static_cast<size_t>(shape.value_dim),
            .cache_dtype = shape.cache_dtype,
            .form = shape.form};
    q = random(static_cast<size_t>(args.num_rows()) * args.q_head_stride);
    sinks = random(static_cast<size_t>(shape.num_heads));
    out.assign(static_cast<size_t>(args.num_rows()) * args.out_head_stride, NAN);
    if (shape.form == CacheForm::kRows) {
      args.row_stride = static_cast<size_t>(padded_value_dim(shape.key_dim));
    }
    if (shape.sinks) args.sinks = sinks.data();
    for (int p = 0; p < positions; ++p) append(writer, p);
    args.pages = pages.data();
    args.num_pages = static_cast<int>(pages.size());
    args.q = q.data();
    args.out = out.data();
    scratch = base::AlignedBytes(attention_scratch_bytes(args));
    args.scratch = scratch.data();
  }

  // [num_tokens, num_heads, value_dim]
  const std::vector<float>& run(const Kernels& kernels) {
    kernels.attention(args);
    return out;
  }

  size_t page_bytes() const { return memory.empty() ? 0 : memory[0].size(); }

  AttentionArgs args;
  std::vector<float> q, sinks, out;
  std::vector<base::AlignedBytes> memory;
  std::vector<KvPage> pages;
  base::AlignedBytes scratch;

 private:
  std::vector<float> random(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(rng_);
    return values;
  }

  void append(const Kernels& writer, int position) {
    const int slot = position % kPageTokens;
    const Dtype dtype = args.cache_dtype;
    if (slot == 0) append_page();
    const KvPage& page = pages.back();
    auto* keys = const_cast<std::byte*>(page.keys);
    const auto key = random(static_cast<size_t>(args.key_dim));
    if (args.form == CacheForm::kRows) {
      const size_t row = static_cast<size_t>(slot) * args.row_stride * dtype_bytes(dtype);
      writer.store_row(dtype, key.data(), args.key_dim, keys + row);
      return;
    }
    const auto value = random(static_cast<size_t>(args.value_dim));
    writer.store_key(dtype, key.data(), args.key_dim, slot, keys);
    writer.store_value(dtype, value.data(), args.value_dim, slot,
                       const_cast<std::byte*>(page.values));
  }

  void append_page() {
    const Dtype dtype = args.cache_dtype;
    const size_t keys = args.form == CacheForm::kRows
                            ? kPageTokens * args.row_stride * dtype_bytes(dtype)
                            : key_panel_bytes(dtype, args.key_dim);
    const size_t values =
        args.form == CacheForm::kRows ? 0 : value_panel_bytes(dtype, args.value_dim);
    memory.emplace_back(keys + values);
    for (size_t i = 0; i < memory.back().size(); ++i) memory.back().data()[i] = std::byte{0xff};
    pages.push_back({memory.back().data(), memory.back().data() + keys});
  }

  std::mt19937 rng_;
};

}  // namespace wideep::kernels
