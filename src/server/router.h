// SPDX-License-Identifier: Apache-2.0
//
// One endpoint before several engines (whole replicas of a model, each a `wideep serve` of its
// own): every request goes to the replica that has the fewest under way. A replica that cannot be
// reached, stops or has no room is passed over, as long as the client has been told nothing.
//
// Every second each replica is asked for its /health, and one that does not say that it is well is
// asked for nothing else while there is another: one that loads, hangs or is switched off takes
// connections or nothing at all, and would look the least busy.
//
//   client ──▶ Router::handle ──▶ Forward ──▶ a replica; the reply comes back as it is, streams too
//
// Thread safety: one thread runs it; drain() and stop() may be called by any.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_server.h"
#include "wideep/status.h"

namespace wideep::server {

struct ReplicaAddress {
  std::string host;
  int port = 0;

  std::string url() const;
};
// Where it is, in numbers, IPv4 first ("10.0.0.1", "::1"). Blocks while names are looked up.
// Errors (failed): the name has no address.
Result<std::string> resolve(const ReplicaAddress& address);
// Of "http://host:port" or "host:port". Errors (invalid input): neither.
Result<ReplicaAddress> parse_replica(std::string_view text);

struct RouterOptions {
  HttpOptions http;
  std::vector<ReplicaAddress> replicas;  // at least one; names are looked up once
};

class Router {
 public:
  // Listens. Errors (failed): the address is in use or not ours; a replica's name has no address.
  static Result<std::unique_ptr<Router>> listen(const RouterOptions& options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  int port() const { return http_->port(); }

  // Until stop(), or until nothing is under way after drain().
  void run();
  void drain();  // takes nothing more, and says so (503)
  void stop();   // cuts what is under way

 private:
  class Forward;
  class Probe;
  struct Replica {
    ReplicaAddress address;
    std::string numbers;  // of the host
    int running = 0;
    uint64_t requests = 0;
    uint64_t failures = 0;
    bool up = true;  // as far as is known
  };

  explicit Router(const RouterOptions& options);
  void handle(const std::shared_ptr<Exchange>& exchange);
  std::string metrics() const;
  // Not one of `tried`; null: none is left.
  Replica* choose(const std::set<const Replica*>& tried);
  void finished(Forward* forward);
  void probe();
  void look_after_connections();

  std::vector<Replica> replicas_;
  size_t next_ = 0;  // of equally busy ones
  bool drains_ = false;
  std::unique_ptr<HttpServer> http_;
  std::set<std::shared_ptr<Forward>> under_way_;
  std::vector<std::unique_ptr<Probe>> probes_;  // of each replica
};

}  // namespace wideep::server
