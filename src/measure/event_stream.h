// SPDX-License-Identifier: Apache-2.0
//
// A client for streamed replies (server-sent events), on libevent: it posts requests to an HTTP
// server and reports every event as soon as it arrives. Programs that measure servers use it. One
// thread waits for all connections at once, so that hundreds of them take little of the processors
// that the server may share.
//
// Thread safety: one thread; while an EventStreams lives, SIGPIPE is blocked there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/no_pipe_signals.h"
#include "wideep/status.h"

struct event;
struct event_base;

namespace wideep::measure {

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

  // patience: how long the server may be silent. Errors (failed): the host is unknown.
  static Result<std::unique_ptr<EventStreams>> open(const HttpAddress& address,
                                                    std::chrono::seconds patience);
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;
  ~EventStreams();

  // Posts a JSON body. on_event is called with the data of each event ("[DONE]" too). on_end is
  // called once: with ok; or (failed) where no connection comes about, the status is not 200 (the
  // message has the beginning of the body), the reply breaks off, or nothing comes for `patience`.
  // Both are called within wait(); on_end perhaps already in here, where there is no connection.
  void post(const std::string& path, std::string body, OnEvent on_event, OnEnd on_end);
  size_t under_way() const { return streams_.size(); }
  // Waits until something comes, at most so long, and calls on_event and on_end for it.
  void wait(std::chrono::milliseconds at_most);

 private:
  class Stream;

  EventStreams(HttpAddress address, std::chrono::seconds patience);
  Status resolve_host();
  void end(Stream& stream, const Status& status);

  HttpAddress address_;
  std::vector<std::string> hosts_;  // its addresses in numbers, in the order of trying
  uint16_t port_ = 0;
  std::chrono::seconds patience_;
  base::NoPipeSignals no_pipe_signals_;
  std::unique_ptr<event_base, void (*)(event_base*)> loop_;
  std::unique_ptr<event, void (*)(event*)> timer_;  // ends wait()
  std::unordered_map<Stream*, std::unique_ptr<Stream>> streams_;
  // Until wait() returns: libevent's connections must not be freed inside their own callbacks.
  std::vector<std::unique_ptr<Stream>> ended_;
};

}  // namespace wideep::measure
