// SPDX-License-Identifier: Apache-2.0
//
// The rows of a group are gathered as floats, each with its gates after its values, and bias added.
// Then elements are taken one after the other for all rows: three passes over few numbers, which
// the compiler turns into vectors.
#include "model/parts/compressor.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kElements = 64;  // that are pooled together

// Elements of the cache as floats.
void read_row(Dtype dtype, const std::byte* row, int first, int count, float* to) {
  if (dtype == Dtype::kF32) {
    std::copy_n(reinterpret_cast<const float*>(row) + first, count, to);
    return;
  }
  const Bf16* from = reinterpret_cast<const Bf16*>(row) + first;
  for (int i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

Result<Compressor> Compressor::load(const ModelConfig& config, const weights::WeightLoader& loader,
                                    const weights::MatrixForm& form, const std::string& prefix,
                                    const Options& options) {
  Compressor part(config, options);
  const int hidden = config.hidden_size, width = options.widths.width(), group = options.group;
  WIDEEP_TRY_ASSIGN(part.kv_, loader.matrix(prefix + "kv_proj.weight", width, hidden, form));
  WIDEEP_TRY_ASSIGN(part.gate_, loader.matrix(prefix + "gate_proj.weight", width, hidden, form));
  WIDEEP_TRY_ASSIGN(part.bias_, loader.floats(prefix + "position_bias", {group, width}));
  WIDEEP_TRY_ASSIGN(part.norm_, loader.floats(prefix + "kv_norm.weight", {options.widths.dim}));
  return part;
}

void Compressor::add_products(float* inputs, size_t stride, std::vector<Product>* products) const {
  float* values = inputs + options_.first_input;
  products->push_back({&kv_.packed, values, stride, all_panels(kv_.packed)});
  products->push_back(
      {&gate_.packed, values + options_.widths.width(), stride, all_panels(gate_.packed)});
}

// rows: [count, 2 · dim]. Writes elements [first, dim) of the entry, a few at a time.
void Compressor::pool(const float* rows, int first, int count, float* entry) const {
  const int dim = options_.widths.dim, width = std::min(kElements, dim - first);
  float largest[kElements], sums[kElements] = {}, weighted[kElements] = {};
  std::fill_n(largest, kElements, -INFINITY);
  const auto stride = static_cast<size_t>(2 * dim);
  for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
    const float* gates = rows + j * stride + dim + first;
    for (int i = 0; i < width; ++i) largest[i] = std::max(largest[i], gates[i]);
  }
  for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
    const float* values = rows + j * stride + first;
    const float* gates = values + dim;
    for (int i = 0; i < width; ++i) {
      const float share = std::exp(gates[i] - largest[i]);
      sums[i] += share;
      weighted[i] += share * values[i];
    }
  }
  for (int i = 0; i < width; ++i) entry[first + i] = weighted[i] / sums[i];
}

void Compressor::make_entry(const MixerCall& call, const Layer& of, const PageList& pages,
                            int index) const {
  thread_local std::vector<float> rows, entry, angles;
  const KvLayout& kv = call.kv;
  const CompressedPage& page = of.page;
  const Rope& rope = of.rope;
  const int layer = of.layer, group = options_.group;
  const Dtype dtype = kv.index_dtype();
  const int dim = options_.widths.dim, width = options_.widths.width(),
            series = options_.widths.series;
  const int first_group = std::max(0, index + 1 - series);  // the first entry has no earlier group
  const int count = (index + 1 - first_group) * group;
  rows.resize(static_cast<size_t>(count) * static_cast<size_t>(2 * dim));
  for (int j = 0; j < count; ++j) {
    const int position = first_group * group + j, in_group = j % group;
    // Of two series the second is for the position's own group.
    const int own = j / group + first_group == index ? (series - 1) * dim : 0;
    const std::byte* input =
        kv.keys(pages[static_cast<size_t>(position / kPageTokens)], layer, 0) + page.inputs +
        static_cast<size_t>(position % kPageTokens) * page.input_stride * dtype_bytes(dtype);
    float* row = rows.data() + static_cast<size_t>(j) * static_cast<size_t>(2 * dim);
    read_row(dtype, input, options_.first_input + own, dim, row);
    read_row(dtype, input, options_.first_input + width + own, dim, row + dim);
    const float* bias = bias_.data() + static_cast<size_t>(in_group) * static_cast<size_t>(width);
    for (int i = 0; i < dim; ++i) row[dim + i] += bias[own + i];
  }
  entry.resize(static_cast<size_t>(dim));
  for (int first = 0; first < dim; first += kElements)
    pool(rows.data(), first, count, entry.data());
  const kernels::Kernels& kernels = call.compute.kernels();
  kernels.rms_norm(entry.data(), norm_.data(), epsilon_, dim, entry.data());
  angles.resize(static_cast<size_t>(rope.dim()));
  rope.angles(index * group, angles.data());
  rope.rotate(kernels, angles.data(), entry.data() + dim - rope.dim());
  const int slot = page.slot(index);
  const Dtype stored = options_.of_index ? dtype : kv.dtype;
  kernels.store_row(stored, entry.data(), dim,
                    kv.keys(pages[static_cast<size_t>(slot / kPageTokens)], layer, 0) +
                        (options_.of_index ? page.index_keys : page.entries) +
                        static_cast<size_t>(slot % kPageTokens) *
                            (options_.of_index ? page.index_stride : page.row_stride) *
                            dtype_bytes(stored));
}

}  // namespace wideep::model
