// SPDX-License-Identifier: Apache-2.0
//
// Of a gated delta net (gated_delta_net.h).
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost delta_net_cost(const ModelConfig& config) {
  const DeltaNetConfig& net = config.delta_net;
  const int hidden = config.hidden_size, heads = net.num_value_heads;
  const int convolved = net.convolved_width(), values = net.value_width();
  PartCost cost;
  if (net.fused_projections) {
    cost.matrix("linear_attn.in_proj_qkvz.weight", convolved + values, hidden, TensorUse::kInput);
    cost.matrix("linear_attn.in_proj_ba.weight", 2 * heads, hidden, TensorUse::kGates);
  } else {
    cost.matrix("linear_attn.in_proj_qkv.weight", convolved, hidden, TensorUse::kInput);
    cost.matrix("linear_attn.in_proj_z.weight", values, hidden, TensorUse::kInput);
    cost.matrix("linear_attn.in_proj_b.weight", heads, hidden, TensorUse::kGates);
    cost.matrix("linear_attn.in_proj_a.weight", heads, hidden, TensorUse::kGates);
  }
  cost.vectors("linear_attn.conv1d.weight", convolved, net.convolution_width);
  cost.vector("linear_attn.A_log", heads);
  cost.vector("linear_attn.dt_bias", heads);
  cost.vector("linear_attn.norm.weight", net.value_dim);
  cost.matrix("linear_attn.out_proj.weight", hidden, values, TensorUse::kOutput);
  // What the projections give, a second time where it has to be taken apart first.
  const uint64_t inputs = uint64_t(convolved) + uint64_t(values) + 2 * uint64_t(heads);
  cost.scratch_floats =
      (net.fused_projections ? 2 : 1) * inputs + uint64_t(values) + uint64_t(hidden);
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)},
                    {TensorUse::kGates, uint64_t(hidden)},
                    {TensorUse::kOutput, uint64_t(values)}}};
  // Of each key head and its value heads: the convolution's last inputs, then a matrix for each
  // value head.
  const int group = heads / net.num_key_heads;
  const int inputs_kept = (net.convolution_width - 1) * (convolved / net.num_key_heads);
  const int unit = inputs_kept + group * net.key_dim * net.value_dim;
  cost.units = {.rows = 1, .units = net.num_key_heads, .unit_floats = in_cache_lines(unit)};
  // The delta rule: Sᵀ k, the update, Sᵀ q.
  cost.state = int64_t{3} * net.num_key_heads * unit;
  return cost;
}

}  // namespace wideep::model
