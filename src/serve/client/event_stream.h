// SPDX-License-Identifier: Apache-2.0
//
// A client for streamed replies (server-sent events), on libevent: it posts requests to an HTTP
// server and reports every event as soon as it arrives, for benchmarks of servers and for chats. One
// thread serves all connections, so that hundreds of them take little processor time from a server
// on the same machine.
//
// Thread safety: one thread; while an EventStreams lives, SIGPIPE is blocked there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/no_pipe_signals.h"
#include "wideep/status.h"

struct event;
struct event_base;

namespace wideep::client {

struct HttpAddress {
  std::string host;
  std::string port = "80";
  std::string path;  // prefix of every endpoint's path; "" or "/…" without a slash at the end
  std::string api_key;

  // "host:port", as the Host field has it: a host with colons, an IPv6 address, is in brackets.
  std::string authority() const;
};
// Parses "http://host[:port][/path]". Errors (invalid input): anything else; https, which is not
// built.
Result<HttpAddress> parse_address(const std::string& url);

// A reply whose status is not 200.
struct Refusal {
  int status = 0;
  std::string body;         // its beginning
  std::string retry_after;  // the header of that name; "": none
};

// The replies that are under way, each on a connection of its own.
class EventStreams {
 public:
  using OnEvent = std::function<void(std::string_view data)>;
  using OnEnd = std::function<void(const Status&)>;

  struct Call {
    std::string path;
    std::optional<std::string> body;  // JSON to POST; nothing: GET
    OnEvent on_event;
    OnEnd on_end;
    bool whole =
        false;  // the reply is no stream of events: on_event is called once, with all of it
    std::function<void(const Refusal&)> on_refusal;  // before on_end; may be empty
  };
  // What a server may send. What is more ends the reply.
  struct Limits {
    size_t event_bytes = size_t{64} << 20;   // of one event, line, chunk or header
    size_t whole_bytes = size_t{256} << 20;  // of a reply that is no stream of events
  };

  // patience: the longest time that the server may send nothing. Errors (failed): the host is
  // unknown.
  static Result<std::unique_ptr<EventStreams>> open(const HttpAddress& address,
                                                    std::chrono::seconds patience);
  static Result<std::unique_ptr<EventStreams>> open(const HttpAddress& address,
                                                    std::chrono::seconds patience, Limits limits);
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;
  ~EventStreams();  // closes the connections of what is under way, without a call of on_end

  // Posts a JSON body. on_event is called with the data of each event (also "[DONE]"). on_end is
  // called once: with ok, or (failed) if it cannot connect, if the status is not 200 (the message
  // has the beginning of the body), if the reply breaks off or goes beyond a limit, or if nothing
  // arrives for `patience`.
  // Both are called from wait(); on_end may also be called from post() if it cannot connect.
  void send(Call call);
  void post(const std::string& path, std::string body, OnEvent on_event, OnEnd on_end,
            bool whole = false);
  size_t under_way() const { return streams_.size(); }
  // Waits until something arrives, for at most `at_most`, and calls on_event and on_end for it.
  void wait(std::chrono::milliseconds at_most);

 private:
  class Stream;

  EventStreams(HttpAddress address, std::chrono::seconds patience, Limits limits);
  Status resolve_host();
  void end_excessive();
  void end(Stream& stream, const Status& status);

  HttpAddress address_;
  std::vector<std::string>
      hosts_;  // the host's numeric addresses, in the order in which to try them
  uint16_t port_ = 0;
  std::chrono::seconds patience_;
  Limits limits_;
  base::NoPipeSignals no_pipe_signals_;
  std::unique_ptr<event_base, void (*)(event_base*)> loop_;
  std::unique_ptr<event, void (*)(event*)> timer_;  // ends wait()
  std::unordered_map<Stream*, std::unique_ptr<Stream>> streams_;
  // Ended streams, kept until wait() returns: libevent must not free a connection inside its
  // callback.
  std::vector<std::unique_ptr<Stream>> ended_;
};

}  // namespace wideep::client
