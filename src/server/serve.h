// SPDX-License-Identifier: Apache-2.0
//
// `wideep serve` without its command line: an engine and its endpoints.
//
// Threads of this process: the caller's supervises the ranks and hears from them; one serves HTTP;
// one per rank writes to it. Where a launcher has started the ranks, rank 0 serves, and its process
// has the threads beside that of the rank.
#pragma once

#include <functional>
#include <string>

#include "engine/serve.h"
#include "server/http_server.h"
#include "server/service.h"
#include "wideep/status.h"

namespace wideep::server {

struct ServeOptions {
  engine::RunOptions run;
  HttpOptions http;
  ServiceOptions service;  // model "": the directory's name; tokens and limits are filled in
};

struct ServeObserver {
  std::function<void(const std::string&)> on_plan;
  std::function<void(uint64_t done, uint64_t all)> on_loading;
  std::function<void(const std::string& line)> on_line;  // what goes on: where it listens, stops
  std::function<void(const online::Rebalance&)> on_rebalance;
};

// Serves until SIGTERM or SIGINT: then no more is taken, and what runs may end (30 s; 5 s after
// SIGINT; at once after the second signal). REQUIRES: the caller has started no thread.
// Errors: as engine::prepare_to_serve; the address; a rank failed.
Status serve(const ServeOptions& options, const ServeObserver& observer);

}  // namespace wideep::server
