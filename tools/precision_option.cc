// SPDX-License-Identifier: Apache-2.0
#include "precision_option.h"

#include <vector>

namespace wideep::tools {

kernels::WeightFormat PrecisionOption::format() const {
  return kernels::weight_format_from_name(name == "float32" ? "f32" : name).value();
}

void add_precision_option(CLI::App& command, PrecisionOption* option) {
  command
      .add_option("--dtype", option->name,
                  "Precision of the weights; cache and dispatched rows are bf16, beside float32 "
                  "weights float32")
      ->check(CLI::IsMember(std::vector<std::string>{"bf16", "float32", "f32", "int8"}))
      ->capture_default_str();
}

}  // namespace wideep::tools
