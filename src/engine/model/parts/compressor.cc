// SPDX-License-Identifier: Apache-2.0
//
// The rows of a group are gathered as floats, each with its gates after its values, and bias added.
#include "model/parts/compressor.h"

#include <algorithm>

#include "base/try.h"
#include "model/parts/group_pool.h"

namespace wideep::model {
using kernels::kPageTokens;

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
    read_cached_row(dtype, input, options_.first_input + own, dim, row);
    read_cached_row(dtype, input, options_.first_input + width + own, dim, row + dim);
    const float* bias = bias_.data() + static_cast<size_t>(in_group) * static_cast<size_t>(width);
    for (int i = 0; i < dim; ++i) row[dim + i] += bias[own + i];
  }
  entry.resize(static_cast<size_t>(dim));
  pool_group(rows.data(), count, dim, entry.data());
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
