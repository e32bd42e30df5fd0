// SPDX-License-Identifier: Apache-2.0
#include "server/http_connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "server/api_error.h"

namespace wideep::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A body that comes more slowly is cut, once its first body_seconds are over.
constexpr size_t kSlowestBytesPerSecond = 8 << 10;
// How long, and for how many bytes beyond the largest request, a connection lingers.
constexpr milliseconds kLinger{1000};
constexpr size_t kLingerBytes = size_t{64} << 10;

// The origin that a reply names as allowed to read it; "": none.
std::string allowed_origin(const HttpOptions& options, const std::string& origin) {
  if (origin.empty()) return "";
  for (const std::string& each : options.cors_origins) {
    if (each == "*" || each == origin) return each;
  }
  return "";
}

}  // namespace

HttpConnection::HttpConnection(const ConnectionSetup& setup, int socket)
    : setup_(setup),
      stream_(bufferevent_socket_new(setup.base, socket, BEV_OPT_CLOSE_ON_FREE)),
      deadline_(event_new(setup.base, -1, 0, late, this)),
      reader_(setup.options.limits()) {
  // A small chunk must not wait for the acknowledgement of the previous one.
  const int at_once = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
}

HttpConnection::~HttpConnection() {
  disconnect();
  event_free(deadline_);
}

void HttpConnection::start() {
  bufferevent_setcb(stream_, readable, written, failed, this);
  // Only while bytes wait to be written: a client that waits for its reply sends nothing.
  const timeval idle{setup_.options.idle_seconds, 0};
  bufferevent_set_timeouts(stream_, nullptr, &idle);
  set_deadline(seconds(setup_.options.idle_seconds));
  bufferevent_enable(stream_, EV_READ | EV_WRITE);
}

void HttpConnection::disconnect() {
  if (std::exchange(state_, kClosed) == kClosed) return;
  unwatch();
  event_del(deadline_);
  bufferevent_free(std::exchange(stream_, nullptr));
  if (Exchange* exchange = std::exchange(exchange_, nullptr)) exchange->detach();
  setup_.owner.forget(this);
}

// ---- reading ----

void HttpConnection::readable(bufferevent*, void* self) {
  static_cast<HttpConnection*>(self)->read();
}

void HttpConnection::read() {
  const auto kept = shared_from_this();
  if (state_ == kReading) read_request();
  if (state_ == kLingering) drop_input();
}

void HttpConnection::read_request() {
  evbuffer* input = bufferevent_get_input(stream_);
  while (state_ == kReading) {
    evbuffer_iovec piece = {};
    if (evbuffer_peek(input, -1, nullptr, &piece, 1) < 1 || piece.iov_len == 0) break;
    const size_t taken = reader_.read({static_cast<const char*>(piece.iov_base), piece.iov_len});
    evbuffer_drain(input, taken);
    if (reader_.progress() == RequestReader::kRefused) return refuse(reader_.error());
    if (reader_.progress() == RequestReader::kDone) return serve();
  }
  note_progress();
}

// Begins the deadline of the next part of the request.
void HttpConnection::note_progress() {
  const RequestReader::Progress progress = reader_.progress();
  if (std::exchange(noted_, progress) == progress) return;
  const HttpOptions& options = setup_.options;
  if (progress == RequestReader::kHead) set_deadline(seconds(options.head_seconds));
  if (progress != RequestReader::kBody) return;
  body_start_ = Clock::now();
  set_deadline(seconds(options.body_seconds));
  continue_if_expected();
}

void HttpConnection::continue_if_expected() {
  if (reader_.head().expects_continue && reader_.body_bytes() == 0) {
    write("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

void HttpConnection::set_deadline(milliseconds from_now) {
  const timeval time{from_now.count() / 1000, from_now.count() % 1000 * 1000};
  event_add(deadline_, &time);
}

void HttpConnection::late(int, short, void* self) {
  static_cast<HttpConnection*>(self)->miss_deadline();
}

void HttpConnection::miss_deadline() {
  const auto kept = shared_from_this();
  if (state_ != kReading || noted_ == RequestReader::kNothing) return disconnect();
  const HttpOptions& options = setup_.options;
  if (noted_ == RequestReader::kHead) {
    return refuse({.status = 408,
                   .message = fmt::format("expected the request's headers within {} s",
                                          options.head_seconds)});
  }
  const auto received = static_cast<int64_t>(reader_.body_bytes() / kSlowestBytesPerSecond);
  const auto due = body_start_ + seconds(options.body_seconds + received);
  const auto left = std::chrono::ceil<milliseconds>(due - Clock::now());
  if (left.count() > 0) return set_deadline(left);
  refuse({.status = 408,
          .message = fmt::format("the body comes too slowly: expected it within {} s and a second "
                                 "for each {} bytes",
                                 options.body_seconds, kSlowestBytesPerSecond)});
}

void HttpConnection::failed(bufferevent*, short, void* self) {
  const auto kept = static_cast<HttpConnection*>(self)->shared_from_this();
  kept->disconnect();
}

// ---- the reply ----

void HttpConnection::serve() {
  state_ = kWaiting;
  noted_ = RequestReader::kNothing;
  event_del(deadline_);
  bufferevent_disable(stream_, EV_READ);
  RequestHead head = reader_.head();
  std::string body = reader_.take_body();
  reader_ = RequestReader(setup_.options.limits());
  const auto exchange = std::make_shared<Exchange>(*this, std::move(head), std::move(body));
  exchange_ = exchange.get();
  const std::string origin = allowed_origin(setup_.options, exchange->header("origin"));
  if (!setup_.options.cors_origins.empty()) exchange->add_header("Vary", "Origin");
  if (!origin.empty()) exchange->allow_origin(origin);
  setup_.owner.handle(exchange);
  if (state_ == kWaiting) watch();
}

// A page may read why, too.
void HttpConnection::refuse(const ApiError& error) {
  const std::string body = error.json();
  const std::string origin = allowed_origin(setup_.options, reader_.head().field("origin"));
  event_del(deadline_);
  bufferevent_disable(stream_, EV_READ);
  write(
      fmt::format("{}{}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: "
                  "close\r\n\r\n{}",
                  status_and_date(error.status),
                  origin.empty() ? "" : fmt::format("Access-Control-Allow-Origin: {}\r\n", origin),
                  body.size(), body));
  end_reply(false);
}

void HttpConnection::write(std::string_view bytes) {
  if (!bytes.empty()) bufferevent_write(stream_, bytes.data(), bytes.size());
}

// Errors of ::send are ignored here: the bytes go into libevent's queue, and the event loop reports
// the error of the socket.
void HttpConnection::write_at_once(std::string_view bytes) {
  evbuffer* unread = bufferevent_get_output(stream_);
  // Only if nothing is queued, else the order of bytes would change.
  if (evbuffer_get_length(unread) == 0) {
    const ssize_t taken =
        ::send(bufferevent_getfd(stream_), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken > 0) bytes.remove_prefix(static_cast<size_t>(taken));
  }
  if (!bytes.empty()) bufferevent_write(stream_, bytes.data(), bytes.size());
  if (evbuffer_get_length(unread) > setup_.options.most_unread_bytes) disconnect();
}

void HttpConnection::flush_later(std::shared_ptr<Exchange> exchange) {
  setup_.owner.flush_later(std::move(exchange));
}

void HttpConnection::end_reply(bool keeps_alive) {
  unwatch();
  exchange_ = nullptr;
  keeps_alive_ = keeps_alive;
  state_ = kWriting;
  if (evbuffer_get_length(bufferevent_get_output(stream_)) == 0) all_written();
}

void HttpConnection::written(bufferevent*, void* self) {
  const auto kept = static_cast<HttpConnection*>(self)->shared_from_this();
  if (kept->state_ == kWriting) kept->all_written();
}

// The client's next request may have been read already, together with the previous one.
void HttpConnection::all_written() {
  if (!keeps_alive_) return linger();
  state_ = kReading;
  set_deadline(seconds(setup_.options.idle_seconds));
  bufferevent_enable(stream_, EV_READ);
  read();
}

void HttpConnection::linger() {
  state_ = kLingering;
  set_deadline(kLinger);
  ::shutdown(bufferevent_getfd(stream_), SHUT_WR);
  bufferevent_enable(stream_, EV_READ);
  drop_input();
}

void HttpConnection::drop_input() {
  evbuffer* input = bufferevent_get_input(stream_);
  dropped_bytes_ += evbuffer_get_length(input);
  evbuffer_drain(input, evbuffer_get_length(input));
  const HttpOptions& options = setup_.options;
  const size_t most = options.most_body_bytes + options.most_header_bytes + kLingerBytes;
  if (dropped_bytes_ > most) disconnect();
}

// ---- clients that leave ----

// Registers the socket, so that HttpServer::clients_left() is called when the client leaves.
void HttpConnection::watch() {
  epoll_event event{.events = EPOLLRDHUP | EPOLLET, .data = {.ptr = this}};
  watched_ = ::epoll_ctl(setup_.left_fd, EPOLL_CTL_ADD, bufferevent_getfd(stream_), &event) == 0;
}

void HttpConnection::unwatch() {
  if (!std::exchange(watched_, false)) return;
  ::epoll_ctl(setup_.left_fd, EPOLL_CTL_DEL, bufferevent_getfd(stream_), nullptr);
}

}  // namespace wideep::server
