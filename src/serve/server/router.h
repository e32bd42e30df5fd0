// SPDX-License-Identifier: Apache-2.0
//
// A load balancer for HTTP: one endpoint in front of several replicas of a model, each a
// `wideep serve`. Every request goes to the replica with the fewest requests in progress, or, with
// RoutePolicy::kPrefix, to that where it costs least (router_costs.h). If this replica cannot be
// reached, is shutting down (503) or is full (429), the router tries the next one, unless a stream
// to the client has already begun.
//
// Every second the router requests /health of each replica. A replica that does not reply with 200
// gets requests only when no healthy one is left. Without this check a replica that loads, hangs or
// is switched off would look the least busy: it accepts connections, but has few requests.
//
//   client ──▶ Router::handle ──▶ Forward ──▶ replica; replies and streams come back unchanged
//
// What replicas have of prompts is found out by one other thread (router_prefixes.h), and a request
// waits for it for kPlaceMs at most (router_placement.h). A replica that cannot be reached or whose
// health check fails counts as one that has begun anew; the others stay as they are.
//
// Thread safety: one thread calls run(); any thread may call drain() and stop().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_server.h"
#include "server/request_tracer.h"
#include "server/router_ask.h"
#include "server/router_page_watch.h"
#include "server/router_placement.h"
#include "server/router_prefixes.h"
#include "wideep/status.h"

namespace wideep::server {

struct ReplicaAddress {
  std::string host;
  int port = 0;

  std::string url() const;
};
// The numeric address of the host, IPv4 if it has one ("10.0.0.1", "::1"). Blocks for the look-up
// of the name. Errors (failed): the name has no address.
Result<std::string> resolve(const ReplicaAddress& address);
// Parses "http://host:port" or "host:port". Errors (invalid input): neither.
Result<ReplicaAddress> parse_replica(std::string_view text);

enum class RoutePolicy : uint8_t { kLeastRequests, kPrefix };

struct RouterOptions {
  // With cors_origins the router says which pages may read replies; without, the replicas do.
  HttpOptions http;
  std::vector<ReplicaAddress> replicas;  // at least one; names are resolved once, at the start
  // A replica that answers no health check for this time hangs: requests do not wait for it.
  int give_up_seconds = 8;
  bool access_log = false;  // a line for each request
  std::optional<traces::TraceSettings> traces;
  RoutePolicy policy = RoutePolicy::kLeastRequests;
  std::string replica_key;  // for what the router itself asks of replicas; "": none
};

class Router : private PageNameSource {
 public:
  // Listens. Errors (failed): the address is in use or not ours; a replica's name has no address.
  static Result<std::unique_ptr<Router>> listen(const RouterOptions& options);
  ~Router() override;
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

 private:
  class Forward;
  class Probe;
  struct Replica {
    ReplicaAddress address;
    std::string numbers;  // numeric address of the host
    int running = 0;      // requests in progress
    uint64_t requests = 0;
    uint64_t failures = 0;
    // With kPrefix. Of prompts for text: bytes that it had, the requests that had some, or none.
    uint64_t work = 0;  // in progress, bytes (router_costs.h)
    uint64_t known_bytes = 0, hits = 0, misses = 0;
    std::chrono::steady_clock::time_point names_from = {};  // when it may be asked for names
    bool up = true;  // the result of the last health check or request
    // When the first of the health checks began that have got no answer; nullopt: the last got one.
    std::optional<std::chrono::steady_clock::time_point> silent_since;
  };

  explicit Router(const RouterOptions& options);
  void handle(const std::shared_ptr<Exchange>& exchange);
  void reply_health(const std::shared_ptr<Exchange>& exchange) const;
  std::string urls() const;
  std::string metrics() const;
  // The best replica that is not in `tried`; null: none is left.
  Replica* choose(const std::set<const Replica*>& tried);
  // The same by costs. match: null: no beginning of the prompt is known.
  Replica* choose_cheapest(const std::set<const Replica*>& tried, uint64_t prompt_bytes,
                           const PromptMatch* match);
  size_t index_of(const Replica& replica) const {
    return static_cast<size_t>(&replica - replicas_.data());
  }
  std::optional<size_t> choose_for_names() override;
  RouterAsk::Question question_of(size_t replica) const override;
  void rest(size_t replica, std::chrono::seconds time) override;
  void begin_prefixes(const RouterOptions& options);
  // It cannot be reached, or its health check fails: it may begin anew, and know nothing.
  void lost(const Replica& replica);
  void finished(Forward* forward);
  // It answers no health check, though its machine may take connections.
  bool hangs(const Replica& replica, std::chrono::steady_clock::time_point now) const;
  void probe();
  void check_connections();

  std::vector<Replica> replicas_;
  std::chrono::seconds give_up_;
  bool decides_origins_;
  size_t next_ = 0;  // where choose() begins: equally busy replicas take turns
  bool drains_ = false;
  std::optional<RequestTracer> tracer_;
  std::unique_ptr<HttpServer> http_;
  std::set<std::shared_ptr<Forward>> in_progress_;
  std::vector<std::unique_ptr<Probe>> probes_;  // [replicas]
  // With kPrefix.
  std::unique_ptr<RouterPrefixes> prefixes_;               // null: another policy
  std::vector<std::unique_ptr<RouterPageWatch>> watches_;  // [replicas]
  uint64_t num_exact_ = 0;                                 // requests whose page names were known
  uint64_t num_unread_ = 0;                                // prompts that were not read
  uint64_t prompt_bytes_ = 0;                              // of prompts that were
};

}  // namespace wideep::server
