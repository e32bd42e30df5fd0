// SPDX-License-Identifier: Apache-2.0
//
// The options of `wideep serve`, for a command that starts it with them (wideep chat).
#pragma once

#include <memory>

#include "command_line/command_line.h"
#include "server/serve.h"

namespace wideep::tools {

// Adds them all; the model need not be given. Their values, as the user has given them, once the
// command line is parsed; it keeps them alive, and must live until then.
std::shared_ptr<const server::ServeOptions> add_serve_options(command_line::Command command);

}  // namespace wideep::tools
