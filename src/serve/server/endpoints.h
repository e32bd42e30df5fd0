// SPDX-License-Identifier: Apache-2.0
//
// A table of endpoints: which function answers which method of which path, who may ask, and how
// long a body may be. HEAD is answered wherever GET is, OPTIONS everywhere.
//
// Thread safety: the serving thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"
#include "http/http_connection.h"
#include "server/replies.h"

namespace wideep::server {

struct Endpoint {
  enum Access { kPublic, kClients, kAdmins };  // nobody needs a key; API key; admin key, if set
  enum Body { kShortBody, kAnyBody };          // short: none, or a few fields
  const char* method;
  const char* path;  // "…/": every path below it; "/": this one
  Access access;
  Body body;
  std::function<void(const std::shared_ptr<Exchange>&)> handler;
};

class Endpoints {
 public:
  struct Keys {
    std::string api;    // "": no key is required
    std::string admin;  // for what changes the service; "": the same as the others
  };

  // replies: outlives it; counts the replies of each endpoint.
  Endpoints(std::vector<Endpoint> table, Keys keys, Replies& replies);

  void handle(const std::shared_ptr<Exchange>& exchange);
  // Whether a request is refused whatever its body is (no such endpoint, no key), and how long its
  // body may be.
  HeadVerdict check_head(const RequestHead& head);
  // Whether kAdmins would be answered, where the service has an admin key; true where it has none.
  bool may_administrate(const RequestHead& head) const;

 private:
  const Endpoint* endpoint_of(std::string_view method, std::string_view path) const;
  std::string allowed_methods(std::string_view path) const;
  std::optional<HttpError> without_endpoint(std::string_view method, std::string_view path) const;
  HeadVerdict judge(const RequestHead& head, std::string_view path) const;
  void answer_options(const std::shared_ptr<Exchange>& exchange);
  std::optional<HttpError> check_key(const RequestHead& head, Endpoint::Access access) const;

  const std::vector<Endpoint> table_;
  const Keys keys_;
  Replies& replies_;
};

}  // namespace wideep::server
