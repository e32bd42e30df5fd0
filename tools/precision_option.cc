// SPDX-License-Identifier: Apache-2.0
#include "precision_option.h"

#include <vector>

namespace wideep::tools {

std::optional<kernels::WeightFormat> PrecisionOption::format() const {
  if (name == "auto") return std::nullopt;
  return kernels::weight_format_from_name(name == "float32" ? "f32" : name);
}

void add_precision_option(command_line::Command command, PrecisionOption* option) {
  command
      .add_option("--dtype", option->name,
                  "Precision of the weights (auto: as stored; float tensors become bf16). The KV "
                  "cache and dispatched rows are bf16, or float32 with float32 weights")
      .one_of(std::vector<std::string>{"auto", "bf16", "float32", "f32", "fp8", "int8", "int4",
                                       "mxfp4", "nvfp4"})
      .show_default();
}

}  // namespace wideep::tools
