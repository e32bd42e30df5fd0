// SPDX-License-Identifier: Apache-2.0
//
// A model's load, and a plan for each of its MoE layers.
//
// Thread safety: plain values.
#pragma once

#include <map>
#include <vector>

#include "wideep/balancer.h"
#include "wideep/placement.h"

namespace wideep::balance {

struct ModelLoad {
  int num_experts = 0;
  std::vector<int> layers;                // the model's layer indices, ascending
  std::vector<std::vector<double>> load;  // [layer][E] tokens
};

struct PlannedModel {
  ModelPlacement placement;
  std::map<int, Shares> shares;  // by layer
};

}  // namespace wideep::balance
