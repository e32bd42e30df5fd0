// SPDX-License-Identifier: Apache-2.0
//
// Options of `serve` and `route`: for whom they answer, and what connections may hold together,
// and how long running requests may take when it ends.
#pragma once

#include <string>

#include "command_line/command_line.h"
#include "http/http_options.h"

namespace wideep::tools {

void add_http_limit_options(command_line::Command command, server::HttpOptions* http);

// --options-file, which main.cc reads before all options: it is here for --help and its value.
void add_options_file_option(command_line::Command command, std::string* file);

// --grace-seconds.
void add_grace_option(command_line::Command command, int* seconds);

}  // namespace wideep::tools
