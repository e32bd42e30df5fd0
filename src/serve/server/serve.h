// SPDX-License-Identifier: Apache-2.0
//
// `wideep serve` without its command line: ranks and endpoints.
//
// Threads of this process: the caller's thread pulls the ranks' events; one thread serves HTTP; one
// thread per pipe writes commands. If a launcher has started the ranks, rank 0 serves, and its
// process has these threads beside that of the rank.
#pragma once

#include <optional>
#include <string>

#include "base/service_notifier.h"
#include "http/http_server.h"
#include "kv_events/events_config.h"
#include "run/run_options.h"
#include "run/run_view.h"
#include "schedule/role.h"
#include "server/membership.h"
#include "server/service.h"
#include "store/redis_address.h"
#include "traces/trace_settings.h"
#include "wideep/status.h"

namespace wideep::server {

// A service over several nodes: the same command runs on each of them.
struct NodeOptions {
  int num_nodes = 1;
  int node = -1;        // this one; node 0 serves
  std::string address;  // of node 0, as the others reach it
  int port = 29501;
  // The secret that all nodes share. Without one the nodes must be on loopback, unless `insecure`
  // says that everybody who reaches their ports may take part.
  std::string key_file;
  bool insecure = false;
};

struct ServeOptions {
  run::RunOptions run;
  NodeOptions nodes;
  HttpOptions http;
  ParserNames parsers;
  int grace_seconds = 30;                  // of running requests after SIGTERM
  std::string generation_config = "auto";  // run::read_sampling_defaults
  ServiceOptions service;  // model "": the directory's name; tokens and limits are filled in
  Membership* membership = nullptr;  // told when requests are taken; null: there is no group
  const base::ServiceNotifier* manager = nullptr;  // told how the service does; null: there is none
  // The first iteration waits for so many requests, but for no more than can run at the same time,
  // and not when none has come for some seconds; 0: for one.
  int start_queue = 0;
  std::string warm_file;    // of prompts (server/warm_up.h); "": none
  bool access_log = false;  // a line for each request
  std::optional<traces::TraceSettings> traces;
  // Which pages ranks know is told; with RunOptions::tells_pages.
  std::optional<kv_events::EventsConfig> kv_events;
  engine::Role role = engine::Role::kBoth;  // that it begins with (server/pd_service.h)
  // Where other servers take pages of its prompts from (server/page_sharing.h), port 0: any that is
  // free; nullopt: nowhere. With RunOptions::takes_from_peers. Without RunOptions::host_cache_bytes
  // these are run::shared_host_cache().
  std::optional<store::RedisHost> pages;
};

// Serves until SIGTERM or SIGINT. Then new requests are refused, and running ones may end: within
// grace_seconds after SIGTERM, at most 5 s after SIGINT, not at all after a second signal. SIGHUP,
// in a process without a terminal, drains: requests are refused, and nothing ends. REQUIRES: the
// caller has started no thread. Errors: as run::Run::prepare; an address cannot be used; a rank
// failed.
//
// On a node other than 0: starts and ends ranks as node 0 says, until that has ended or this
// process gets SIGTERM or SIGINT; if it is cut off, it connects again. Errors: the settings differ
// from those of node 0.
Status serve(const ServeOptions& options, run::RunView& view);

}  // namespace wideep::server
