// SPDX-License-Identifier: Apache-2.0
//
// Bytes are received here, straight into the journal; libevent's buffer only writes. Whatever goes
// out is in the journal first. A callback may close the connection, and with it free this object,
// so whoever is called by libevent holds it (kept). What all connections hold is a sum of
// differences: count() corrects it after every change, and limits on all together are judged by it.
#include "http/http_connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "base/cpu_time.h"
#include "group/fault_drill.h"
#include "http/http_error.h"
#include "http/request_id.h"

namespace wideep::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::FaultDrill;

// A body that comes more slowly is cut, once its first body_seconds are over.
constexpr size_t kSlowestBytesPerSecond = 8 << 10;
// How long, and for how many bytes beyond the largest request, a connection lingers.
constexpr milliseconds kLinger{1000};
constexpr size_t kLingerBytes = size_t{64} << 10;
constexpr size_t kReadBytes = size_t{16} << 10;  // at once

// The origin that a reply names as allowed to read it; "": none.
std::string allowed_origin(const HttpOptions& options, const std::string& origin) {
  if (origin.empty()) return "";
  for (const std::string& each : options.cors_origins) {
    if (each == "*" || each == origin) return each;
  }
  return "";
}

}  // namespace

HttpConnection::HttpConnection(const ConnectionSetup& setup, int socket,
                               std::unique_ptr<ConnectionJournal> journal, int64_t id)
    : setup_(setup),
      id_(id),
      journal_(std::move(journal)),
      stream_(bufferevent_socket_new(setup.base, socket, BEV_OPT_CLOSE_ON_FREE)),
      readable_(event_new(setup.base, socket, EV_READ | EV_PERSIST, readable, this)),
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

void HttpConnection::start(bool is_suspect) {
  bufferevent_setcb(stream_, nullptr, written, failed, this);
  // Only while bytes wait to be written: a client that waits for its reply sends nothing.
  const timeval idle{setup_.options.idle_seconds, 0};
  bufferevent_set_timeouts(stream_, nullptr, &idle);
  set_deadline(seconds(setup_.options.idle_seconds));
  bufferevent_disable(stream_, EV_READ);
  bufferevent_enable(stream_, EV_WRITE);
  event_add(readable_, nullptr);
  if (journal_ != nullptr && !go_on(is_suspect)) return disconnect();
  note_idle();
}

// Another process may have begun to read a request or to answer it. False: it cannot be gone on
// with.
bool HttpConnection::go_on(bool is_suspect) {
  const std::optional<std::string> unsent = journal_->unsent(bufferevent_getfd(stream_));
  if (!unsent || !journal_->is_complete()) return false;
  if (!unsent->empty()) bufferevent_write(stream_, unsent->data(), unsent->size());
  if (journal_->closes()) {
    event_del(readable_);
    end_reply(false);
    return true;
  }
  // A request with which one process after the other has died is likely the cause.
  constexpr int kMaxSuspicions = 3;
  if (is_suspect && !journal_->input().empty() && journal_->suspect() == kMaxSuspicions) {
    reader_.read(journal_->input());
    return false;
  }
  const auto kept = shared_from_this();
  goes_on_ = true;
  read_request();
  goes_on_ = false;
  return true;
}

bool HttpConnection::has_input() const {
  char byte = 0;
  return ::recv(bufferevent_getfd(stream_), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool HttpConnection::has_unread() const { return state_ == kWriting && unread_bytes() > 0; }

void HttpConnection::disconnect() {
  if (state_ == kReading) note_unanswered();
  if (std::exchange(state_, kClosed) == kClosed) return;
  count();
  unwatch();
  event_del(deadline_);
  event_free(std::exchange(readable_, nullptr));
  bufferevent_free(std::exchange(stream_, nullptr));
  if (Exchange* exchange = std::exchange(exchange_, nullptr)) replied_ = exchange->detach();
  note_ended(false);
  setup_.owner.forget(this);
}

// ---- reading ----

void HttpConnection::readable(int, short, void* self) {
  auto* connection = static_cast<HttpConnection*>(self);
  const auto kept = connection->shared_from_this();
  if (connection->receive()) connection->read();
}

// The next bytes, if there are any. False: the client has left.
bool HttpConnection::receive() {
  std::span<char> room;
  const size_t before = input_.size();
  if (journal_ != nullptr) {
    room = journal_->input_room();
    if (room.empty()) {
      refuse({.status = 413, .message = "the request and those before it are too long"});
      return false;
    }
  } else {
    input_.resize(before + kReadBytes);
    room = std::span(input_).subspan(before);
  }
  const ssize_t count = ::recv(bufferevent_getfd(stream_), room.data(), room.size(), MSG_DONTWAIT);
  const bool waits = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  FaultDrill::pass(FaultDrill::Step::kRead);
  if (count > 0 && journal_ != nullptr) journal_->received(static_cast<size_t>(count));
  if (journal_ == nullptr) input_.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count > 0 || waits) return true;
  disconnect();
  return false;
}

std::string_view HttpConnection::input() const {
  return journal_ != nullptr ? journal_->input() : std::string_view(input_);
}

void HttpConnection::read() {
  const auto kept = shared_from_this();
  if (state_ == kReading) read_request();
  if (state_ == kLingering) drop_input();
}

void HttpConnection::read_request() {
  while (state_ == kReading && parsed_ < input().size()) {
    parsed_ += reader_.read(input().substr(parsed_));
    if (reader_.progress() == RequestReader::kRefused) return refuse(reader_.error());
    if (reader_.progress() == RequestReader::kDone) return serve();
  }
  forget_parsed();
  count();
  if (const auto error = check_total()) return refuse(*error);
  note_progress();
}

// Small requests are answered even where all together are too many bytes.
std::optional<HttpError> HttpConnection::check_total() const {
  const size_t max = setup_.options.max_request_bytes_of_all;
  const bool is_small = held_.requests <= HttpOptions::kSmallRequestBytes * num_copies();
  if (is_small || setup_.totals.requests <= max) return std::nullopt;
  return HttpError{
      .status = 503,
      .message = fmt::format("the requests that this server reads and answers take {} bytes "
                             "together, and at most {} may: try again later",
                             setup_.totals.requests, max),
      .code = "too_many_request_bytes"};
}

size_t HttpConnection::unread_bytes() const {
  return evbuffer_get_length(bufferevent_get_output(stream_));
}

// What this connection holds now.
void HttpConnection::count() {
  ConnectionTotals now;
  if (state_ != kClosed) {
    now.unread = unread_bytes() * num_copies();
    now.requests = input().size() + reader_.held_bytes() + answer_bytes_ +
                   (journal_ != nullptr ? journal_->record_bytes() : 0);
  }
  setup_.totals.requests += now.requests - held_.requests;
  setup_.totals.unread += now.unread - held_.unread;
  held_ = now;
  note_idle();
}

bool HttpConnection::is_idle() const {
  return state_ == kReading && input().empty() && reader_.progress() == RequestReader::kNothing &&
         unread_bytes() == 0;
}

void HttpConnection::note_idle() {
  const bool was_idle = idle_number_ != 0;
  if (is_idle() == was_idle) return;
  if (was_idle) {
    setup_.owner.no_longer_idle(std::exchange(idle_number_, 0));
  } else {
    idle_number_ = setup_.owner.became_idle(this);
  }
}

void HttpConnection::add_record(std::string_view record) {
  if (journal_ == nullptr) return;
  journal_->add_record(record);
  count();
  if (!check_total()) return;
  journal_->give_up();
  count();
}

std::optional<HttpError> HttpConnection::hold(size_t bytes) {
  answer_bytes_ = bytes;
  count();
  return check_total();
}

// The reader has what it needs of them. A journal keeps them: another process reads them again.
void HttpConnection::forget_parsed() {
  if (journal_ != nullptr) return;
  input_.erase(0, std::exchange(parsed_, 0));
}

// Begins the deadline of the next part of the request.
void HttpConnection::note_progress() {
  const RequestReader::Progress progress = reader_.progress();
  if (std::exchange(noted_, progress) == progress) return;
  const HttpOptions& options = setup_.options;
  if (progress == RequestReader::kHead) set_deadline(seconds(options.head_seconds));
  if (progress != RequestReader::kBody || is_refused_by_head(false)) return;
  body_start_ = Clock::now();
  set_deadline(seconds(options.body_seconds));
  continue_if_expected();
}

// Then nothing of the body is wanted, or no more than it may have.
bool HttpConnection::is_refused_by_head(bool whole) {
  HeadVerdict verdict = setup_.owner.check(reader_.head(), whole);
  if (!verdict.error) {
    reader_.limit_body(verdict.max_body_bytes);
    if (reader_.progress() == RequestReader::kRefused) verdict.error = reader_.error();
  }
  if (verdict.error) refuse(*verdict.error);
  return verdict.error.has_value();
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
  if (is_refused_by_head(true)) return;
  forget_parsed();
  state_ = kWaiting;
  noted_ = RequestReader::kNothing;
  event_del(deadline_);
  event_del(readable_);
  answer_bytes_ = reader_.held_bytes();
  RequestHead head = reader_.head();
  std::string body = reader_.take_body();
  reader_ = RequestReader(setup_.options.limits());
  const auto exchange = std::make_shared<Exchange>(*this, std::move(head), std::move(body));
  exchange_ = exchange.get();
  if (std::exchange(goes_on_, false)) exchange->set_inherited();  // what follows it is new
  count();
  const std::string origin = allowed_origin(setup_.options, exchange->header("origin"));
  if (!setup_.options.cors_origins.empty()) exchange->add_header("Vary", "Origin");
  if (!origin.empty()) exchange->allow_origin(origin);
  setup_.owner.handle(exchange);
  if (state_ == kWaiting) watch();
}

// A page may read why, too.
void HttpConnection::refuse(const HttpError& error) {
  const RequestHead& head = reader_.head();
  const std::string body = setup_.options.error_body(head, error);
  if (setup_.owner.watches()) replied_ = record_of_head(error.status);
  const std::string id = replied_ ? replied_->id : request_id_of(head);
  const std::string origin = allowed_origin(setup_.options, head.field("origin"));
  event_del(deadline_);
  event_del(readable_);
  if (journal_ != nullptr && journal_->num_calls() > 0) return end_reply(false);  // it was written
  refuses_ = true;
  write(
      fmt::format("{}{}: {}\r\n{}{}{}Content-Type: application/json\r\nContent-Length: {}\r\n"
                  "Connection: close\r\n\r\n{}",
                  status_and_date(error.status), kRequestId, id,
                  error.status == 503 ? "Retry-After: 1\r\n" : "",
                  error.allow.empty() ? "" : fmt::format("Allow: {}\r\n", error.allow),
                  origin.empty() ? "" : fmt::format("Access-Control-Allow-Origin: {}\r\n", origin),
                  body.size(), head.method == "HEAD" ? "" : body));
  // Its body's memory, too, which a text that gets an empty one would keep.
  std::exchange(reader_, RequestReader(setup_.options.limits()));
  end_reply(false);
}

// Before they leave: should this process die in between, another one sends them.
void HttpConnection::note_output(std::string_view bytes) {
  if (journal_ == nullptr) return;
  const uint64_t calls = exchange_ != nullptr ? exchange_->num_calls() : 0;
  journal_->append(bytes, refuses_ ? 1 : calls);
  FaultDrill::pass(FaultDrill::Step::kWriting);
}

void HttpConnection::write(std::string_view bytes) {
  note_output(bytes);
  if (!bytes.empty()) bufferevent_write(stream_, bytes.data(), bytes.size());
  note_unread();
}

// Errors of ::send are ignored here: the bytes go into libevent's queue, and the event loop reports
// the error of the socket.
void HttpConnection::write_at_once(std::string_view bytes) {
  note_output(bytes);
  // Only if nothing is queued, else the order of bytes would change.
  if (unread_bytes() == 0) {
    const ssize_t taken =
        ::send(bufferevent_getfd(stream_), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken > 0) bytes.remove_prefix(static_cast<size_t>(taken));
  }
  if (!bytes.empty()) bufferevent_write(stream_, bytes.data(), bytes.size());
  note_unread();
  if (unread_bytes() > setup_.options.max_unread_bytes) disconnect();
}

// After bytes were written, or taken by the socket.
void HttpConnection::note_unread() {
  count();
  if (journal_ != nullptr) journal_->sent_all_but(unread_bytes());
  if (setup_.totals.unread > setup_.options.max_unread_bytes_of_all) setup_.owner.shed_later();
}

void HttpConnection::flush_later(std::shared_ptr<Exchange> exchange) {
  setup_.owner.flush_later(std::move(exchange));
}

void HttpConnection::end_reply(bool keeps_alive) {
  unwatch();
  if (exchange_ != nullptr && setup_.owner.watches()) replied_ = exchange_->take_record();
  if (replied_) replied_->replied_ns = base::wall_ns();
  exchange_ = nullptr;
  FaultDrill::pass(FaultDrill::Step::kReplied);
  if (journal_ != nullptr) {
    journal_->end_request(parsed_, !keeps_alive);
  } else {
    input_.erase(0, parsed_);  // of one that was refused
  }
  parsed_ = 0;
  answer_bytes_ = 0;
  keeps_alive_ = keeps_alive;
  state_ = kWriting;
  count();
  const size_t unread = unread_bytes();
  if (unread == 0) return all_written();
  const auto slow = static_cast<int64_t>(unread / kSlowestBytesPerSecond);
  set_deadline(seconds(setup_.options.idle_seconds + slow));
}

void HttpConnection::written(bufferevent*, void* self) {
  const auto kept = static_cast<HttpConnection*>(self)->shared_from_this();
  kept->note_unread();
  if (kept->state_ == kWriting) kept->all_written();
}

// The client's next request may have been read already, together with the previous one.
void HttpConnection::all_written() {
  note_ended(true);
  if (!keeps_alive_) return linger();
  state_ = kReading;
  set_deadline(seconds(setup_.options.idle_seconds));
  event_add(readable_, nullptr);
  read();
}

void HttpConnection::linger() {
  state_ = kLingering;
  set_deadline(kLinger);
  ::shutdown(bufferevent_getfd(stream_), SHUT_WR);
  event_add(readable_, nullptr);
  drop_input();
}

void HttpConnection::drop_input() {
  const size_t bytes = input().size();
  dropped_bytes_ += bytes;
  if (journal_ != nullptr) {
    journal_->end_request(bytes, true);
  } else {
    input_.clear();
  }
  count();
  const HttpOptions& options = setup_.options;
  const size_t max = options.max_body_bytes + options.max_header_bytes + kLingerBytes;
  if (dropped_bytes_ > max) disconnect();
}

// Of a request that nobody handles.
RequestRecord HttpConnection::record_of_head(int status) const {
  const RequestHead& head = reader_.head();
  return {.id = request_id_of(head),
          .client = client(),
          .method = head.method,
          .path = head.target.substr(0, head.target.find('?')),
          .status = status,
          .came_ns = base::wall_ns()};
}

// The client leaves before its request has come whole, or is cut off with one that processes die of.
// Before its head is complete it has asked for nothing.
void HttpConnection::note_unanswered() {
  const RequestReader::Progress progress = reader_.progress();
  const bool has_head = progress == RequestReader::kBody || progress == RequestReader::kDone;
  if (has_head && setup_.owner.watches()) replied_ = record_of_head(0);
}

// The request is over, if one is.
void HttpConnection::note_ended(bool is_whole) {
  std::optional<RequestRecord> record = std::exchange(replied_, std::nullopt);
  if (!record || !setup_.owner.watches()) return;
  record->is_whole = is_whole;
  record->ended_ns = base::wall_ns();
  setup_.owner.ended(*record);
}

// Nobody asks the system where nobody wants to know.
std::string HttpConnection::client() const {
  if (stream_ == nullptr || !setup_.owner.watches()) return "";
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  auto* address = reinterpret_cast<sockaddr*>(&peer);
  if (::getpeername(bufferevent_getfd(stream_), address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  const bool is_v6 = peer.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

// A client over IPv4 of a socket that takes both has reached ::ffff:a.b.c.d.
std::string HttpConnection::local_host() const {
  if (stream_ == nullptr) return "";
  sockaddr_storage here = {};
  socklen_t length = sizeof(here);
  char host[NI_MAXHOST];
  auto* address = reinterpret_cast<sockaddr*>(&here);
  if (::getsockname(bufferevent_getfd(stream_), address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view text = host;
  const bool is_mapped = text.starts_with(kMapped) && text.find('.') != text.npos;
  return std::string(is_mapped ? text.substr(kMapped.size()) : text);
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
