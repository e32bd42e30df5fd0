// SPDX-License-Identifier: Apache-2.0
//
// A load balancer for HTTP: one endpoint in front of several replicas of a model, each a
// `wideep serve`. Every request goes to the replica with the fewest requests in progress, or, with
// RoutePolicy::kPrefix, to that where it costs least (router_costs.h). If this replica cannot be
// reached, is shutting down (503) or is full (429), the router tries the next one, unless a stream
// to the client has already begun.
//
// With RouterOptions::disaggregation a request for text may be divided between a replica that
// computes its prompt and one that answers, where that is predicted to cost less
// (router_pd_costs.h).
//
//   client ──▶ Router ──▶ RouterForward ──▶ replica; replies and streams come back unchanged
//                  ╰──▶ RouterReplicas: which there are, how they are
//
// Thread safety: one thread calls run(); any thread may call drain(), stop() and set_members().
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "http/http_server.h"
#include "server/request_tracer.h"
#include "server/router_forward.h"
#include "server/router_names.h"
#include "server/router_options.h"
#include "server/router_replicas.h"
#include "wideep/status.h"

namespace wideep::server {

class Router {
 public:
  // Listens. Errors (failed): the address is in use or not ours; a replica's name has no address.
  static Result<std::unique_ptr<Router>> listen(const RouterOptions& options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  int port() const { return http_->port(); }

  // Sends traces, if the options have some, from another thread. Before run(); the process must not
  // fork afterwards. Errors (failed): the system refuses an event loop.
  Status start_traces() { return tracer_ ? tracer_->start() : Status(); }
  // Serves until stop(), or after drain() until no request is in progress.
  void run();
  void drain();  // refuses new requests with 503
  void stop();   // cuts requests in progress
  // From now on these are the replicas, as soon as their names are looked up: requests in progress at
  // others end there. One whose name has no address is left out, with a line, until it has one.
  // REQUIRES: the options have disaggregation.
  void set_members(const std::vector<RouterMember>& members);

 private:
  Router() : names_([this](const auto& members) { take(members); }) {}
  void take(const std::vector<RouterReplicas::Resolved>& members) {
    http_->post([this, members] { replicas_->set_members(members); });
  }
  void handle(const std::shared_ptr<Exchange>& exchange);
  void reply_health(const std::shared_ptr<Exchange>& exchange) const;
  std::string metrics() const;
  void over(const std::shared_ptr<RouterForward>& forward);
  void check_connections();

  bool drains_ = false;
  std::optional<RequestTracer> tracer_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RouterReplicas> replicas_;
  StreamJournalMemory journals_;
  std::optional<RouterForward::Context> context_;
  std::set<std::shared_ptr<RouterForward>> in_progress_;
  RouterNames names_;  // last: its thread uses the members above
};

}  // namespace wideep::server
