// SPDX-License-Identifier: Apache-2.0
//
// Random weights whose router chooses experts by a recorded load: through the bias that DeepSeek's
// router adds to the scores when it selects, and fitted as in training without an auxiliary loss:
// an expert that gets too few tokens gets more bias. Tokens still choose by their own hidden
// states.
//
// Thread safety: pure functions; a LoadedTensors, all calls.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "plan/model_plan.h"
#include "weights/random_tensors.h"

namespace wideep::measure {

// The bias [num_experts] with which tokens whose logits are independent and normal, with this
// deviation, choose experts in proportion to the load [num_experts].
// REQUIRES: routing.selection_bias; some load > 0.
std::vector<float> bias_for_load(const model::RoutingConfig& routing,
                                 const std::vector<double>& load, float deviation);

// RandomTensors but for these biases.
class LoadedTensors : public weights::TensorSource {
 public:
  // load: of layers of the model.
  LoadedTensors(uint64_t seed, const model::RoutingConfig& routing, const balance::ModelLoad& load);

  using TensorSource::tensor;
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape) const override;

 private:
  struct Bias {
    std::vector<float> values;
    tensor_files::TensorEntry entry;
  };
  weights::RandomTensors random_;
  std::map<std::string, Bias> biases_;  // by name; unchanged after construction
};

// Half the sum of the differences between the shares of two loads of as many experts: the part of
// one that would have to go elsewhere to be the other. 0 where they are in proportion, at most 1.
double load_distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace wideep::measure
