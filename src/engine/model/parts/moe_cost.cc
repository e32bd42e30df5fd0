// SPDX-License-Identifier: Apache-2.0
//
// Of a mixture of experts (moe.h) and of MLPs (mlp.h).
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost dense_mlp_cost(const ModelConfig& config) {
  PartCost cost;
  const int width = config.dense_intermediate_size, hidden = config.hidden_size;
  cost.mlp("mlp", {width, hidden}, TensorUse::kMlp, config.dense_activation);
  if (config.dense_bias) cost.mlp_biases("mlp", width, hidden);
  return cost;
}

PartCost moe_cost(const ModelConfig& config, const LayerConfig& layer) {
  const RoutingConfig& routing = config.routing;
  const int hidden = config.hidden_size;
  PartCost cost;
  cost.matrix("mlp.gate.weight", routing.num_experts, hidden, TensorUse::kFloat);
  if (routing.logit_bias) cost.vector("mlp.gate.bias", routing.num_experts);
  if (layer.by_token) {
    cost.vectors("mlp.gate.tid2eid", config.vocab_size, routing.top_k);
  } else if (routing.selection_bias) {
    cost.vector("mlp.gate.e_score_correction_bias", routing.num_experts);
  }
  if (routing.own_norm) cost.vector("mlp.gate.norm.weight", hidden);
  if (routing.expert_scale) cost.vector("mlp.gate.expert_scale", routing.num_experts);
  if (const int latent = config.moe_latent_size; latent > 0) {
    cost.matrix("mlp.fc1_latent_proj.weight", latent, hidden, TensorUse::kLatentIn);
    cost.matrix("mlp.fc2_latent_proj.weight", hidden, latent, TensorUse::kLatentOut);
  }
  if (config.shared_intermediate_size == 0) return cost;
  cost.mlp("mlp.shared_experts", {config.shared_intermediate_size, hidden}, TensorUse::kMlp,
           config.dense_activation);
  if (config.shared_expert_gate) {
    cost.matrix("mlp.shared_expert_gate.weight", 1, hidden, TensorUse::kFloat);
  }
  return cost;
}

PartCost expert_cost(const ModelConfig& config, const std::string& name) {
  const int width = config.moe_intermediate_size, hidden = config.expert_hidden_size();
  PartCost cost;
  cost.mlp(name, {width, hidden}, TensorUse::kExpert, config.activation);
  if (config.expert_bias) cost.mlp_biases(name, width, hidden);
  return cost;
}

}  // namespace wideep::model
