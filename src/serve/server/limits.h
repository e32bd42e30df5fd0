// SPDX-License-Identifier: Apache-2.0
//
// What a server's clients can have of it, all together: for `wideep doctor`, and as the table of
// docs/serve.md (limits_test.cc compares them).
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "api/response_store.h"
#include "http/http_options.h"

namespace wideep::server {

struct Limit {
  std::string of;      // "bodies of requests"
  std::string max;     // "8 MiB each"
  std::string option;  // that changes it; "": none
  std::string beyond;  // what happens
};

std::vector<Limit> limits(const HttpOptions& http, const ResponseStoreLimits& stored,
                          int max_queue);

// The table in Markdown, of the limits without options.
std::string limits_markdown();

}  // namespace wideep::server
