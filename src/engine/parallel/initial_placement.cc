// SPDX-License-Identifier: Apache-2.0
#include "parallel/initial_placement.h"

#include <fmt/format.h>

#include "base/try.h"

namespace wideep::parallel {
namespace {

using balance::ModelPlacement;
using recordings::MoeShape;

Result<ModelPlacement> linear(const ParallelConfig& config, const MoeShape& shape) {
  const auto placement = balance::linear_placement(shape.num_experts, shape.ep_size);
  if (!placement.ok()) return placement.status().at(config.name);
  ModelPlacement model;
  model.num_slots = placement->num_slots();
  for (int layer : shape.moe_layers) model.layers[layer] = *placement;
  return model;
}

}  // namespace

std::string balancer_name(const ParallelConfig& config) {
  return config.moe_config.load_balancer_path.value_or(config.name + ": moe_config.load_balancer");
}

Result<ModelPlacement> initial_placement(const ParallelConfig& config, const ModelExperts& model) {
  const MoeShape shape{.moe_layers = model.moe_layers,
                       .num_experts = model.num_experts,
                       .ep_size = config.sizes.moe_ep};
  const MoeConfig& moe = config.moe_config;
  if (model.moe_layers.empty()) {
    ModelPlacement none;
    none.num_slots = config.sizes.tp;
    return none;
  }
  if (!moe.load_balancer && !moe.load_balancer_path) return linear(config, shape);

  return moe.load_balancer_path
             ? recordings::read_balancer_yaml(*moe.load_balancer_path, shape)
             : recordings::resolve_placement(*moe.load_balancer, shape, balancer_name(config));
}

balance::ModelPlacement placement_of_layers(const balance::ModelPlacement& placement,
                                            LayerRange layers) {
  balance::ModelPlacement part = placement;
  std::erase_if(part.layers, [&](const auto& layer) { return !layers.contains(layer.first); });
  return part;
}

}  // namespace wideep::parallel
