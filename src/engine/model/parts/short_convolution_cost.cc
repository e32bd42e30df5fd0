// SPDX-License-Identifier: Apache-2.0
//
// Of a short convolution (short_convolution.h).
#include "kernels/packed_matrix.h"
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost convolution_cost(const ModelConfig& config) {
  const int hidden = config.hidden_size, width = config.convolution_width;
  PartCost cost;
  cost.matrix("conv.in_proj.weight", int64_t{3} * hidden, hidden, TensorUse::kInput);
  cost.vectors("conv.conv.weight", hidden, width);
  cost.matrix("conv.out_proj.weight", hidden, hidden, TensorUse::kOutput);
  if (config.convolution_bias) {
    cost.vector("conv.in_proj.bias", int64_t{3} * hidden);
    cost.vector("conv.conv.bias", hidden);
    cost.vector("conv.out_proj.bias", hidden);
  }
  cost.scratch_floats = 5 * uint64_t(hidden);  // b, c and x, the convolved row, the output
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)}, {TensorUse::kOutput, uint64_t(hidden)}}};
  // A row for each of the last inputs, whose channels are cut like the columns of a product.
  cost.units = {.rows = width - 1,
                .units = (hidden + kernels::kPanelWidth - 1) / kernels::kPanelWidth,
                .unit_floats = kernels::kPanelWidth};
  // The convolution and both gates: at most three for each value of the state, if width is 3 or
  // more.
  cost.state = int64_t{3} * (width - 1) * hidden;
  return cost;
}

}  // namespace wideep::model
