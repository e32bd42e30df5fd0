// SPDX-License-Identifier: Apache-2.0
//
// Of Kimi Delta Attention (kimi_delta_attention.h).
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

void add_projection(const std::string& name, int width, int rank, int hidden, PartCost* cost) {
  if (rank == 0) {
    cost->matrix(name + "_proj.weight", width, hidden, TensorUse::kInput);
    return;
  }
  cost->matrix(name + "_a_proj.weight", rank, hidden, TensorUse::kInput);
  cost->matrix(name + "_b_proj.weight", width, rank, TensorUse::kQueryB);
}

}  // namespace

PartCost kimi_delta_cost(const ModelConfig& config) {
  const KimiDeltaConfig& net = config.kimi_delta;
  const int hidden = config.hidden_size, heads = net.num_heads, width = net.width();
  PartCost cost;
  for (const char* name : {"q", "k", "v"}) {
    const std::string path = std::string("self_attn.") + name;
    cost.matrix(path + "_proj.weight", width, hidden, TensorUse::kInput);
    cost.vectors(path + "_conv1d.weight", width, net.convolution_width);
  }
  add_projection("self_attn.f", width, net.decay_rank, hidden, &cost);
  add_projection("self_attn.g", width, net.gate_rank, hidden, &cost);
  cost.matrix("self_attn.b_proj.weight", heads, hidden, TensorUse::kGates);
  cost.vector("self_attn.A_log", heads);
  cost.vector("self_attn.dt_bias", width);
  cost.vector("self_attn.o_norm.weight", net.head_dim);
  cost.matrix("self_attn.o_proj.weight", hidden, width, TensorUse::kOutput);
  const uint64_t ranks = uint64_t(net.decay_rank) + uint64_t(net.gate_rank);
  cost.scratch_floats = 6 * uint64_t(width) + ranks + uint64_t(heads) + uint64_t(hidden);
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)},
                    {TensorUse::kGates, uint64_t(hidden)},
                    {TensorUse::kOutput, uint64_t(width)}},
                   {{TensorUse::kQueryB, uint64_t(net.decay_rank)},
                    {TensorUse::kQueryB, uint64_t(net.gate_rank)}}};
  cost.units = {.rows = 1,
                .units = heads,
                .unit_floats = in_cache_lines(static_cast<int>(net.head_state_floats()))};
  cost.state = int64_t{3} * heads * net.head_dim * net.head_dim;  // as delta_net_cost()
  return cost;
}

}  // namespace wideep::model
