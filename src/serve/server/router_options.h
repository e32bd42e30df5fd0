// SPDX-License-Identifier: Apache-2.0
//
// What a router is told: where it listens, before which replicas, and by which rules.
//
// Thread safety: plain values; functions from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_options.h"
#include "schedule/role.h"
#include "server/disaggregation_options.h"
#include "traces/trace_settings.h"
#include "wideep/status.h"

namespace wideep::server {

struct ReplicaAddress {
  std::string host;
  int port = 0;

  bool operator==(const ReplicaAddress&) const = default;
  std::string url() const;
};
// The numeric address of the host, IPv4 if it has one ("10.0.0.1", "::1"). Blocks for the look-up
// of the name. Errors (failed): the name has no address.
Result<std::string> resolve(const ReplicaAddress& address);
// Parses "http://host:port" or "host:port". Errors (invalid input): neither.
Result<ReplicaAddress> parse_replica(std::string_view text);

struct RouterMember {
  ReplicaAddress address;
  engine::Role role = engine::Role::kBoth;  // until the server says another one

  bool prefills() const { return role != engine::Role::kDecode; }
  bool decodes() const { return role != engine::Role::kPrefill; }
  bool operator==(const RouterMember&) const = default;
};

enum class RoutePolicy : uint8_t { kLeastRequests, kPrefix };

struct RouterOptions {
  // With cors_origins the router says which pages may read replies; without, the replicas do.
  HttpOptions http;
  // At least one, or with disaggregation those that are there already. Names are resolved once, at
  // the start.
  std::vector<RouterMember> replicas;
  // A replica that answers no health check for this time hangs: requests do not wait for it.
  int give_up_seconds = 8;
  bool access_log = false;  // a line for each request
  std::optional<traces::TraceSettings> traces;
  RoutePolicy policy = RoutePolicy::kLeastRequests;
  std::string replica_key;  // for what the router itself asks of replicas; "": none
  // Requests for text are divided between replicas that compute prompts and replicas that answer.
  // All others go by kPrefix then.
  std::optional<DisaggregationOptions> disaggregation;
};

}  // namespace wideep::server
