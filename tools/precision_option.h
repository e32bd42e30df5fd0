// SPDX-License-Identifier: Apache-2.0
//
// --dtype: the precision of the weights, by name.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "kernels/weight_format.h"

namespace wideep::tools {

struct PrecisionOption {
  std::string name = "auto";  // one of those that add_precision_option lets through

  // Nothing: as the checkpoint stores them. REQUIRES: the command line was accepted.
  std::optional<kernels::WeightFormat> format() const;
};

// Adds --dtype. `option` must outlive the parsing.
void add_precision_option(command_line::Command command, PrecisionOption* option);

}  // namespace wideep::tools
