// SPDX-License-Identifier: Apache-2.0
//
// Of Mamba-2 (mamba2.h).
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost mamba2_cost(const ModelConfig& config) {
  const Mamba2Config& options = config.mamba2;
  const int hidden = config.hidden_size, heads = options.num_heads;
  const int convolved = options.convolved_width(), values = options.value_width();
  PartCost cost;
  cost.matrix("mamba.in_proj.weight", options.projected_width(), hidden, TensorUse::kInput);
  if (options.projection_bias) cost.vector("mamba.in_proj.bias", options.projected_width());
  cost.vectors("mamba.conv1d.weight", convolved, options.convolution_width);
  if (options.convolution_bias) cost.vector("mamba.conv1d.bias", convolved);
  cost.vector("mamba.dt_bias", heads);
  cost.vector("mamba.A_log", heads);
  cost.vector("mamba.D", heads);
  cost.vector("mamba.norm.weight", values);
  cost.matrix("mamba.out_proj.weight", hidden, values, TensorUse::kOutput);
  if (options.projection_bias) cost.vector("mamba.out_proj.bias", hidden);
  cost.scratch_floats = uint64_t(options.projected_width()) + uint64_t(heads) +
                        2 * uint64_t(values) + uint64_t(hidden);
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)}, {TensorUse::kOutput, uint64_t(values)}}};
  // Of each head: the last inputs of its convolution, b and c of its group among them, then its
  // matrix.
  const int matrix = options.state_dim * options.head_dim;
  const int unit =
      (options.convolution_width - 1) * (options.head_dim + 2 * options.state_dim) + matrix;
  cost.units = {.rows = 1, .units = heads, .unit_floats = in_cache_lines(unit)};
  cost.state = int64_t{2} * heads * matrix;  // the update, Sᵀ c
  return cost;
}

}  // namespace wideep::model
