// SPDX-License-Identifier: Apache-2.0
//
// From a configuration's load_balancer to the placement that serving begins with.
//
// Thread safety: pure functions of their arguments and the file.
#pragma once

#include <string>
#include <vector>

#include "parallel/parallel_config.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::parallel {

// What the model brings to its placement.
struct ModelExperts {
  std::vector<int> moe_layers;  // layer indices that have experts, ascending
  int num_experts = 0;          // E of each of them
};

// What messages about the balancer's settings begin with: its file, or its key.
std::string balancer_name(const ParallelConfig& config);

// The placement of every MoE layer over moe_expert_parallel_size ranks: of the load balancer's file
// or inline settings, or linear where there is none. Errors (invalid input): as
// recordings::read_balancer_yaml and balance::linear_placement.
Result<balance::ModelPlacement> initial_placement(const ParallelConfig& config,
                                                  const ModelExperts& model);

// That of a pipeline stage's layers.
balance::ModelPlacement placement_of_layers(const balance::ModelPlacement& placement,
                                            LayerRange layers);

}  // namespace wideep::parallel
