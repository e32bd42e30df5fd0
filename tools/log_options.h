// SPDX-License-Identifier: Apache-2.0
//
// Options of `serve` and `route`: what their lines on stderr look like, and whether each request
// has one.
#pragma once

#include <string>

#include "command_line/command_line.h"

namespace wideep::tools {

struct LogOptions {
  std::string format = "auto";
  bool access = false;  // a line for each request

  // Lines look so from now on, also those of processes that are forked.
  void apply() const;
};

void add_log_options(command_line::Command command, LogOptions* options);

}  // namespace wideep::tools
