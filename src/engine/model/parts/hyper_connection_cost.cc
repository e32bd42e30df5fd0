// SPDX-License-Identifier: Apache-2.0
//
// Of a hyper-connection (hyper_connection.h).
#include "model/parts/part_cost.h"

namespace wideep::model {

// That of the model's end has weights of streams only.
PartCost hyper_cost(const ModelConfig& config, const std::string& name) {
  const int n = config.hyper.num_streams;
  const bool is_end = name.ends_with("hc_head");
  const int outputs = is_end ? n : (2 + n) * n;
  const std::string begin = name + (is_end ? ".hc_" : ".");
  PartCost cost;
  cost.matrix(begin + "fn", outputs, config.stream_width(), TensorUse::kFloat);
  cost.vector(begin + "base", outputs);
  cost.vector(begin + "scale", is_end ? 1 : 3);
  return cost;
}

}  // namespace wideep::model
