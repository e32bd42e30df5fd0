// SPDX-License-Identifier: Apache-2.0
//
// A client of streamed replies: posts requests to a server of HTTP, and tells of every event as it
// comes. What measures servers uses it: one thread waits for all connections at once and reads each
// as soon as it has something, so that hundreds of them cost little of processors that the server
// may share.
//
// Thread safety: one thread; pure functions of their arguments.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
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

// Replies under way, each on a connection of its own.
class EventStreams {
 public:
  using OnEvent = std::function<void(std::string_view data)>;
  using OnEnd = std::function<void(const Status&)>;

  // patience: how long a server may say nothing. Errors (failed): nobody knows the host.
  static Result<EventStreams> open(const HttpAddress& address, std::chrono::seconds patience);
  EventStreams(EventStreams&&) noexcept;
  EventStreams& operator=(EventStreams&&) = delete;
  ~EventStreams();

  // Posts a JSON body. on_event: the data of each event ("[DONE]" too). on_end, once: ok; or
  // (failed) no connection; another status than 200, with what the server says; a reply that breaks
  // off, or of which nothing comes for so long. Both are called in wait(); on_end, where there is
  // no connection, perhaps already in here.
  void post(const std::string& path, const std::string& body, OnEvent on_event, OnEnd on_end);
  size_t under_way() const;
  // Waits until something comes, at most so long, and tells of it.
  void wait(std::chrono::milliseconds at_most);

 private:
  class Loop;
  explicit EventStreams(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace wideep::bench
