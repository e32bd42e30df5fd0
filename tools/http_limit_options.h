// SPDX-License-Identifier: Apache-2.0
//
// Options of `serve` and `route`: for whom they answer, and what connections may hold together.
#pragma once

#include "command_line/command_line.h"
#include "http/http_options.h"

namespace wideep::tools {

void add_http_limit_options(command_line::Command command, server::HttpOptions* http);

}  // namespace wideep::tools
