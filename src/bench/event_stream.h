// SPDX-License-Identifier: Apache-2.0
//
// A client of streamed replies: posts a request to a server of HTTP, and is told of every event as
// it comes. What measures servers uses it: blocking, so that no queue of ours stands in between.
//
// Thread safety: pure functions of their arguments.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::bench {

struct HttpAddress {
  std::string host;
  std::string port = "80";
  std::string path;  // before that of an endpoint; "" or "/…" without a slash at the end
  std::string api_key;
};
// "http://host[:port][/path]". Errors (invalid input): anything else; https, which is not built.
Result<HttpAddress> parse_address(const std::string& url);

// Posts a JSON body. on_event: the data of each event of the stream ("[DONE]" too), as it comes.
// Errors (failed): no connection; another status than 200, with what the server says; a reply that
// breaks off, or from which nothing comes for so long.
Status post_for_events(const HttpAddress& address, const std::string& path, const std::string& body,
                       std::chrono::seconds patience,
                       const std::function<void(std::string_view data)>& on_event);

}  // namespace wideep::bench
