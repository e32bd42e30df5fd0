// SPDX-License-Identifier: Apache-2.0
//
// What `route` and `disaggregated` have in common: a router that serves in a thread until a signal
// comes. The first ends it when running requests have finished or their time is over, another one
// at once.
#pragma once

#include <functional>
#include <string>

#include "command_line/command_line.h"
#include "log_options.h"
#include "server/grace.h"
#include "server/router.h"
#include "wideep/status.h"

namespace wideep::tools {

struct RouterCommand {
  server::RouterOptions router;
  LogOptions log;
  std::string options_file;
  std::string key_file;
  int grace_seconds = server::kGraceSeconds;
};

// All but the address and the replicas.
void add_router_options(command_line::Command command, RouterCommand* options);

// What goes on beside the router.
struct BesideRouter {
  // After it listens; threads may be started from here on.
  std::function<Status(server::Router& router)> begin;
  // Once a second. An error ends the router.
  std::function<Status()> look;
  // Before the router is destroyed.
  std::function<void()> end;
};

// Serves until a signal, or an error of what goes on beside. options.router: with replicas.
Status run_router(const RouterCommand& options, const BesideRouter& beside);

}  // namespace wideep::tools
