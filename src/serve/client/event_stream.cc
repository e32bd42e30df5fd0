// SPDX-License-Identifier: Apache-2.0
//
// libevent does the HTTP; what it does not tell is found out here: a refused connection has no
// error, one that times out while it connects neither, and errno is overwritten after the error
// callback. Timers are precise and Nagle's algorithm is off, or requests would leave late and the
// server would look slow. Addresses of a host are tried in turn until one connects. A connection is
// freed after wait() has left libevent's callbacks.
#include "client/event_stream.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/try.h"
#include "client/event_parser.h"

namespace wideep::client {
namespace {

using Clock = std::chrono::steady_clock;
using Connection = std::unique_ptr<evhttp_connection, decltype(&::evhttp_connection_free)>;

constexpr size_t kMaxOfRefusal = 300;       // bytes of a refusal's body to repeat in the message
constexpr size_t kMaxOfRefusalKept = 4096;  // and to hand over

// Without EVENT_BASE_FLAG_PRECISE_TIMER timers may be late by several milliseconds, and requests
// would be sent as late.
event_base* new_loop() {
  event_config* config = event_config_new();
  event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
  event_base* loop = event_base_new_with_config(config);
  event_config_free(config);
  return loop;
}

}  // namespace

std::string HttpAddress::authority() const {
  const bool is_v6 = host.find(':') != host.npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HttpAddress> parse_address(const std::string& url) {
  const auto complain = [&](const char* why) {
    return invalid_input(fmt::format("{}: expected http://host[:port][/path]{}", url, why));
  };
  if (url.starts_with("https://")) return complain("; https is not built");
  const std::unique_ptr<evhttp_uri, decltype(&::evhttp_uri_free)> uri(
      ::evhttp_uri_parse(url.c_str()), ::evhttp_uri_free);
  if (uri == nullptr || !url.starts_with("http://")) return complain("");
  HttpAddress address{.host = evhttp_uri_get_host(uri.get()),
                      .path = evhttp_uri_get_path(uri.get())};
  std::string& host = address.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return complain("");
  const int port = evhttp_uri_get_port(uri.get());
  if (port >= 0) address.port = std::to_string(port);
  while (address.path.ends_with('/')) address.path.pop_back();
  // What would be left out without a word.
  if (evhttp_uri_get_userinfo(uri.get()) != nullptr) {
    return invalid_input("expected http://host[:port][/path], found a user before the host");
  }
  if (evhttp_uri_get_query(uri.get()) != nullptr || evhttp_uri_get_fragment(uri.get()) != nullptr) {
    return complain(", found ? or #");
  }
  return address;
}

// A request and its reply. libevent does the HTTP.
class EventStreams::Stream {
 public:
  Stream(EventStreams& all, Call call)
      : all_(all), call_(std::move(call)), events_(all.limits_.event_bytes) {}

  // Connects to address number `host` of the host, and sends the request once connected.
  void send_to(size_t host);
  void report_end(const Status& status) const {
    if (call_.on_refusal && refused_ && !status.ok()) call_.on_refusal(refusal_);
    call_.on_end(status);
  }
  // The error of a reply that goes beyond a limit; ok: none so far. Not from libevent's callbacks:
  // a chunk whose end has not come is in its buffer.
  Status check_limits() const;

 private:
  evhttp_connection* new_connection();
  evhttp_request* new_request();
  void take(evhttp_request* reply);
  void note_refusal(evhttp_request* reply);
  void finish(int http_status);
  bool is_out_of_patience() const;
  Status status_of(int http_status) const;

  EventStreams& all_;
  Call call_;
  EventParser events_;
  bool is_event_too_long_ = false;
  std::string whole_;  // the reply so far, if it is no stream of events
  bool refused_ = false;
  Refusal refusal_;
  size_t host_ = 0;
  Clock::time_point sent_at_;
  bool was_connected_ = false;
  std::optional<evhttp_request_error> error_;
  int system_error_ = 0;                 // errno at the time of error_
  std::vector<Connection> connections_;  // one for each address tried so far
};

void EventStreams::Stream::send_to(size_t host) {
  host_ = host;
  sent_at_ = Clock::now();
  error_.reset();
  evhttp_connection* connection = new_connection();
  evhttp_make_request(connection, new_request(), call_.body ? EVHTTP_REQ_POST : EVHTTP_REQ_GET,
                      (all_.address_.path + call_.path).c_str());
  // Nagle's algorithm would hold back the end of a long request until its beginning is
  // acknowledged.
  const int at_once = 1;
  ::setsockopt(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), IPPROTO_TCP,
               TCP_NODELAY, &at_once, sizeof(at_once));
}

// libevent calls the close callback only if the connection was established: that tells a server
// that is not there from one that closes early.
evhttp_connection* EventStreams::Stream::new_connection() {
  evhttp_connection* connection = evhttp_connection_base_bufferevent_new(
      all_.loop_.get(), nullptr, nullptr, all_.hosts_[host_].c_str(), all_.port_);
  connections_.emplace_back(connection, ::evhttp_connection_free);
  evhttp_connection_set_max_headers_size(connection, ev_ssize_t{1} << 16);
  evhttp_connection_set_timeout(connection, static_cast<int>(all_.patience_.count()));
  evhttp_connection_set_closecb(
      connection,
      [](evhttp_connection*, void* self) { static_cast<Stream*>(self)->was_connected_ = true; },
      this);
  return connection;
}

// libevent always calls the first callback at the end; without a reply it passes null, or a reply
// without a status. It reports most errors to the error callback before that. errno must be read
// there: later calls overwrite it.
evhttp_request* EventStreams::Stream::new_request() {
  evhttp_request* request = evhttp_request_new(
      [](evhttp_request* reply, void* self) {
        auto* stream = static_cast<Stream*>(self);
        const int http_status = reply ? evhttp_request_get_response_code(reply) : 0;
        if (http_status != 0 && http_status != HTTP_OK) stream->note_refusal(reply);
        stream->finish(http_status);
      },
      this);
  evhttp_request_set_chunked_cb(
      request, [](evhttp_request* reply, void* self) { static_cast<Stream*>(self)->take(reply); });
  evhttp_request_set_error_cb(request, [](evhttp_request_error error, void* self) {
    static_cast<Stream*>(self)->system_error_ = errno;
    static_cast<Stream*>(self)->error_ = error;
  });
  evkeyvalq* headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Host", all_.address_.authority().c_str());
  evhttp_add_header(headers, "Connection", "close");
  if (call_.body) evhttp_add_header(headers, "Content-Type", "application/json");
  if (const std::string& key = all_.address_.api_key; !key.empty()) {
    evhttp_add_header(headers, "Authorization", ("Bearer " + key).c_str());
  }
  if (call_.body) {
    evbuffer_add(evhttp_request_get_output_buffer(request), call_.body->data(), call_.body->size());
  }
  return request;
}

void EventStreams::Stream::take(evhttp_request* reply) {
  const bool is_refusal = evhttp_request_get_response_code(reply) != HTTP_OK;
  if (is_refusal) note_refusal(reply);
  evbuffer* bytes = evhttp_request_get_input_buffer(reply);
  char part[4096];
  for (int length; (length = evbuffer_remove(bytes, part, sizeof(part))) > 0;) {
    const std::string_view more(part, static_cast<size_t>(length));
    if (is_refusal) {
      refusal_.body += more.substr(0, kMaxOfRefusalKept - refusal_.body.size());
    } else if (call_.whole) {
      if (whole_.size() <= all_.limits_.whole_bytes) whole_ += more;
    } else if (!events_.take(more, call_.on_event)) {
      is_event_too_long_ = true;
    }
  }
}

void EventStreams::Stream::note_refusal(evhttp_request* reply) {
  refused_ = true;
  refusal_.status = evhttp_request_get_response_code(reply);
  const char* wait = evhttp_find_header(evhttp_request_get_input_headers(reply), "Retry-After");
  if (wait != nullptr) refusal_.retry_after = wait;
}

Status EventStreams::Stream::check_limits() const {
  const Limits& limits = all_.limits_;
  bufferevent* bytes = evhttp_connection_get_bufferevent(connections_.back().get());
  const size_t waiting = evbuffer_get_length(bufferevent_get_input(bytes));
  if (is_event_too_long_ || waiting > limits.event_bytes) {
    return failed(fmt::format("the server has sent an event, a line or a chunk of more than {} MiB",
                              limits.event_bytes >> 20));
  }
  if (whole_.size() > limits.whole_bytes) {
    return failed(fmt::format("the reply has more than {} MiB", limits.whole_bytes >> 20));
  }
  return {};
}

void EventStreams::Stream::finish(int http_status) {
  const bool is_unreachable = !was_connected_ && !is_out_of_patience();
  if (is_unreachable && host_ + 1 < all_.hosts_.size()) return send_to(host_ + 1);
  const Status status = status_of(http_status);
  if (call_.whole && status.ok()) call_.on_event(whole_);
  all_.end(*this, status);
}

// libevent reports every timeout as an error, except that of connecting: that one is found by the
// time that has passed.
bool EventStreams::Stream::is_out_of_patience() const {
  if (error_) return error_ == EVREQ_HTTP_TIMEOUT;
  return !was_connected_ && Clock::now() - sent_at_ >= all_.patience_;
}

Status EventStreams::Stream::status_of(int http_status) const {
  WIDEEP_TRY(check_limits());
  if (http_status == HTTP_OK) return {};
  if (http_status != 0) {
    return failed(
        fmt::format("status {}: {}", http_status, refusal_.body.substr(0, kMaxOfRefusal)));
  }
  if (is_out_of_patience()) {
    return failed(fmt::format("the server sent nothing for {} s", all_.patience_.count()));
  }
  if (!was_connected_) {
    // libevent reports no error if the connection is refused.
    return failed(fmt::format("{}: {}", all_.address_.authority(),
                              std::strerror(error_ ? system_error_ : ECONNREFUSED)));
  }
  if (error_ == EVREQ_HTTP_INVALID_HEADER) return failed("the reply is not HTTP/1");
  // If the server closes the connection in an orderly way, there is no system error to report.
  const char* why = system_error_ == ECONNRESET ? ": Connection reset by peer" : "";
  return failed(fmt::format("the reply breaks off{}", why));
}

Result<std::unique_ptr<EventStreams>> EventStreams::open(const HttpAddress& address,
                                                         std::chrono::seconds patience) {
  return open(address, patience, Limits{});
}

Result<std::unique_ptr<EventStreams>> EventStreams::open(const HttpAddress& address,
                                                         std::chrono::seconds patience,
                                                         Limits limits) {
  std::unique_ptr<EventStreams> streams(new EventStreams(address, patience, limits));
  WIDEEP_TRY(streams->resolve_host());
  return streams;
}

EventStreams::EventStreams(HttpAddress address, std::chrono::seconds patience, Limits limits)
    : address_(std::move(address)),
      patience_(patience),
      limits_(limits),
      loop_(new_loop(), ::event_base_free),
      timer_(evtimer_new(loop_.get(), [](int, short, void*) {}, nullptr), ::event_free) {}
EventStreams::~EventStreams() = default;

Status EventStreams::resolve_host() {
  const addrinfo wanted{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(address_.host.c_str(), address_.port.c_str(), &wanted, &found);
  for (const addrinfo* each = found; error == 0 && each != nullptr; each = each->ai_next) {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    error = ::getnameinfo(each->ai_addr, each->ai_addrlen, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    hosts_.emplace_back(host);
    port_ = static_cast<uint16_t>(std::atoi(port));
  }
  if (found != nullptr) ::freeaddrinfo(found);
  if (error == 0) return {};
  return failed(fmt::format("{}: {}", address_.host, ::gai_strerror(error)));
}

void EventStreams::post(const std::string& path, std::string body, OnEvent on_event, OnEnd on_end,
                        bool whole) {
  send({.path = path,
        .body = std::move(body),
        .on_event = std::move(on_event),
        .on_end = std::move(on_end),
        .whole = whole});
}

void EventStreams::send(Call call) {
  auto owned = std::make_unique<Stream>(*this, std::move(call));
  Stream& stream = *owned;
  streams_[&stream] = std::move(owned);
  stream.send_to(0);
}

void EventStreams::wait(std::chrono::milliseconds at_most) {
  const int64_t ms = std::max<int64_t>(at_most.count(), 0);
  const timeval timeout{ms / 1000, ms % 1000 * 1000};
  event_add(timer_.get(), &timeout);
  errno = 0;  // so that the error callback reads an errno of this call, not an older one
  event_base_loop(loop_.get(), EVLOOP_ONCE);
  end_excessive();
  ended_.clear();
}

void EventStreams::end_excessive() {
  std::vector<Stream*> excessive;
  for (const auto& [stream, owned] : streams_) {
    if (!stream->check_limits().ok()) excessive.push_back(stream);
  }
  for (Stream* stream : excessive) end(*stream, stream->check_limits());
}

void EventStreams::end(Stream& stream, const Status& status) {
  ended_.push_back(std::move(streams_.extract(&stream).mapped()));
  stream.report_end(status);
}

}  // namespace wideep::client
