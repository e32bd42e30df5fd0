// SPDX-License-Identifier: Apache-2.0
//
// `wideep serve` without its command line: an engine and its endpoints.
//
// Threads of this process: the caller's pulls the ranks' events; one serves HTTP; one for each rank
// writes commands to it. Where a launcher has started the ranks, rank 0 serves, and its process has
// these threads beside that of the rank.
#pragma once

#include <string>

#include "run/run_options.h"
#include "run/run_view.h"
#include "server/http_server.h"
#include "server/service.h"
#include "wideep/status.h"

namespace wideep::server {

struct ServeOptions {
  run::RunOptions run;
  HttpOptions http;
  ServiceOptions service;  // model "": the directory's name; tokens and limits are filled in
};

// Serves until SIGTERM or SIGINT: then no more is taken, and what runs may end (30 s; 5 s after
// SIGINT; at once after the second signal). REQUIRES: the caller has started no thread.
// Errors: as run::Run::prepare; the address; a rank failed.
Status serve(const ServeOptions& options, run::RunView& view);

}  // namespace wideep::server
