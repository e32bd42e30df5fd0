// SPDX-License-Identifier: Apache-2.0
//
// `wideep serve` without its command line: ranks and endpoints.
//
// Threads of this process: the caller's thread pulls the ranks' events; one thread serves HTTP; one
// thread per pipe writes commands. If a launcher has started the ranks, rank 0 serves, and its
// process has these threads beside that of the rank.
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

// Serves until SIGTERM or SIGINT. Then new requests are refused, and running ones may end: within
// 30 s after SIGTERM, 5 s after SIGINT, not at all after a second signal. REQUIRES: the caller has
// started no thread. Errors: as run::Run::prepare; the address cannot be used; a rank failed.
Status serve(const ServeOptions& options, run::RunView& view);

}  // namespace wideep::server
