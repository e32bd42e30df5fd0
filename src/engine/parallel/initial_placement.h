// SPDX-License-Identifier: Apache-2.0
//
// Makes the placement at the start of serving from a configuration's load_balancer.
//
// Thread safety: pure functions of their arguments and the file.
#pragma once

#include <string>
#include <vector>

#include "parallel/parallel_config.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::parallel {

// The properties of a model that its placement depends on.
struct ModelExperts {
  std::vector<int> moe_layers;  // layer indices that have experts, ascending
  int num_experts = 0;          // E of each of them
};

// The name that begins messages about the balancer's settings: its file, or its key.
std::string balancer_name(const ParallelConfig& config);

// The placement of every MoE layer over moe_expert_parallel_size ranks: from the load balancer's
// file or inline settings; linear without a load balancer. Of a model without MoE layers one that
// has none, with a slot for each rank of tensor_parallel_size. Errors (invalid input): as
// recordings::read_balancer_yaml and balance::linear_placement.
Result<balance::ModelPlacement> initial_placement(const ParallelConfig& config,
                                                  const ModelExperts& model);

// The part of a placement with the layers of a pipeline stage.
balance::ModelPlacement placement_of_layers(const balance::ModelPlacement& placement,
                                            LayerRange layers);

}  // namespace wideep::parallel
