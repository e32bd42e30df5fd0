// SPDX-License-Identifier: Apache-2.0
//
// One endpoint before several engines (whole replicas of a model, each a `wideep serve` of its
// own): every request goes to the replica that has the fewest under way. A replica that cannot be
// reached, stops or has no room is passed over, as long as the client has been told nothing.
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
// Of "http://host:port" or "host:port". Errors (invalid input): neither.
Result<ReplicaAddress> parse_replica(std::string_view text);

struct RouterOptions {
  HttpOptions http;
  std::vector<ReplicaAddress> replicas;  // at least one
};

class Router {
 public:
  // Listens. Errors (failed): the address is in use or not ours.
  static Result<std::unique_ptr<Router>> listen(const RouterOptions& options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  int port() const { return http_->port(); }

  // Until stop(), or until nothing is under way after drain().
  void run();
  void drain();  // takes nothing more
  void stop();   // cuts what is under way

 private:
  class Forward;
  struct Replica {
    ReplicaAddress address;
    int running = 0;
    uint64_t requests = 0;
    uint64_t failures = 0;
    std::chrono::steady_clock::time_point down_until = {};
  };

  explicit Router(const RouterOptions& options);
  void handle(const std::shared_ptr<Exchange>& exchange);
  std::string metrics() const;
  // Not one of `tried`; null: none is left.
  Replica* choose(const std::set<const Replica*>& tried);
  void finished(Forward* forward);

  std::vector<Replica> replicas_;
  size_t next_ = 0;  // of equally busy ones
  bool drains_ = false;
  std::unique_ptr<HttpServer> http_;
  std::set<std::shared_ptr<Forward>> under_way_;
};

}  // namespace wideep::server
