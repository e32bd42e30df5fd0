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
  cost.scratch_floats =
      uint64_t(options.projected_width()) + uint64_t(heads) + uint64_t(values) + uint64_t(hidden);
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)}, {TensorUse::kOutput, uint64_t(values)}}};
  // The convolution's last inputs, then a matrix for each head.
  cost.state_floats = int64_t{options.convolution_width - 1} * convolved +
                      int64_t{heads} * options.state_dim * options.head_dim;
  cost.state = 2 * cost.state_floats;  // the update, Sᵀ c
  return cost;
}

}  // namespace wideep::model
