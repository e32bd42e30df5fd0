// SPDX-License-Identifier: Apache-2.0
//
// Keeps web pages from using a server that the browser's user can reach, and they cannot.
//
//  - Host: a name that an attacker's DNS points to a loopback address (DNS rebinding) is not one of
//    this server's. A server on a loopback address is asked by its address, by a name without a dot
//    such as "localhost", which no foreign DNS can answer for, by the name it was told to listen
//    on, or by one of allowed_hosts.
//  - Origin: a browser sends a simple POST of a foreign page without asking, and only keeps the
//    reply from it. Without a key, a page of an origin that is not allowed is refused. With one, a
//    POST is whose body needs no question (text/plain, a form, or no type): no page can add a key.
//
// Thread safety: immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_error.h"
#include "http/http_request_reader.h"

namespace wideep::server {

class RequestGuard {
 public:
  struct Options {
    std::vector<std::string> hosts;  // that may be asked for; empty: every host
    bool checks_origins = false;
    bool has_key = false;
    std::vector<std::string> origins;  // allowed ones; "*": all
  };

  RequestGuard() = default;  // lets everything pass
  explicit RequestGuard(Options options);

  // The hosts of a server: of one on a loopback address, or where `allowed` names some, only these.
  static std::vector<std::string> hosts_of(const std::string& host, bool is_loopback,
                                           const std::vector<std::string>& allowed);

  // Why the request is refused; nullopt: it is not.
  std::optional<HttpError> check(const RequestHead& head) const;

 private:
  bool is_own_host(std::string_view host) const;
  bool is_allowed_origin(const RequestHead& head, const std::string& origin) const;

  Options options_;
};

}  // namespace wideep::server
