// SPDX-License-Identifier: Apache-2.0
//
// wideep route: one endpoint before several servers of the same model.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "router_command.h"
#include "trace_variables.h"

namespace wideep::tools {
namespace {

struct Options {
  RouterCommand common;
  std::vector<std::string> replicas;
};

Status run(const Options& options) {
  options.common.log.apply();
  RouterCommand command = options.common;
  WIDEEP_TRY_ASSIGN(command.router.traces, read_trace_variables());
  for (const std::string& url : options.replicas) {
    WIDEEP_TRY_ASSIGN(server::ReplicaAddress address, server::parse_replica(url));
    command.router.replicas.push_back({.address = std::move(address)});
  }
  const auto begin = [&](server::Router& router) -> Status {
    log::info("routing to {} replicas on http://{}:{}/v1", command.router.replicas.size(),
              command.router.http.host, router.port());
    return {};
  };
  return run_router(command, {.begin = begin, .look = {}, .end = {}});
}

}  // namespace

void add_route_command(command_line::Command app, Status* status) {
  const command_line::Command command =
      app.add_command("route", "Distribute requests over several servers of the same model");
  auto options = std::make_shared<Options>();
  server::RouterOptions& router = options->common.router;
  command
      .add_option("--replica", options->replicas,
                  "Address of a server, http://host:port; repeat for each server")
      .required();
  command.add_option("--host", router.http.host, "Address to listen on").show_default();
  command.add_option("--port", router.http.port, "Port to listen on; 0: any free port")
      .range(0, 65535)
      .show_default();
  command.add_choice<server::RoutePolicy>(
      "--policy", router.policy,
      "Where a request goes: least-requests (default), to the server with the fewest; prefix, to "
      "the one that has least to compute: servers keep beginnings of prompts",
      {{"least-requests", server::RoutePolicy::kLeastRequests},
       {"prefix", server::RoutePolicy::kPrefix}});
  add_router_options(command, &options->common);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
