// SPDX-License-Identifier: Apache-2.0
//
// Where a server of Redis' protocol is and how to get in, as one URL, as other clients write it:
//
//   redis[s]://[user[:password]@]host[:port][,host[:port]…][/db][?ssl_ca_certs=FILE…]
//
// rediss: with TLS. Several hosts: some of a cluster, from which the others are learnt. User and
// password with %XX for what has a meaning in a URL. [::1]:6379 is an IPv6 host. After the ?: files
// of TLS, as redis-py names them: ssl_ca_certs, ssl_certfile, ssl_keyfile.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::store {

inline constexpr size_t kMaxHostNameBytes = 255;  // of DNS

struct RedisHost {
  std::string name;  // without brackets
  uint16_t port = 6379;

  std::string text() const;  // "host:6379", "[::1]:6379"
  auto operator<=>(const RedisHost&) const = default;
};

// As text() writes it; brackets may be missing (MOVED has none). Errors (invalid input).
Result<RedisHost> parse_redis_host(std::string_view text);

struct RedisOptions {
  std::vector<RedisHost> hosts;  // at least one; several: a cluster
  std::string user, password;    // both "": no AUTH
  int db = 0;
  bool is_tls = false;
  std::string ca_file;           // PEM; "": the system's authorities
  std::string certificate_file;  // this client's, PEM; "": none
  std::string key_file;          // its key
  bool follows = true;           // asks the servers that one names which says it has not the key
  std::chrono::seconds ttl{604800};  // how long a record stays that nobody reads; 7 days

  // Deadlines. A call may take reply_timeout, and its bytes at this speed.
  std::chrono::milliseconds connect_timeout{1000};  // look-up, connection, TLS and AUTH together
  std::chrono::milliseconds reply_timeout{1000};
  std::chrono::milliseconds find_timeout{250};  // of all that a look-up asks, besides connecting
  double min_bytes_per_second = 16e6;

  std::string text() const;  // for lines and metrics: without user and password
};

// Errors (invalid input): a line that has neither user nor password in it.
Result<RedisOptions> parse_redis_url(std::string_view url);

}  // namespace wideep::store
