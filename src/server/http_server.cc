// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/no_pipe_signals.h"
#include "base/try.h"
#include "server/api_error.h"

namespace wideep::server {
namespace {

// Room in front of a chunk's bytes for its head: the number of bytes in hexadecimal, then "\r\n".
constexpr size_t kChunkHead = 2 * sizeof(size_t) + 2;

// Input buffer beyond the largest request: the last read may contain bytes of the next request.
constexpr size_t kInputSlack = size_t{64} << 10;
// How long no connection is accepted after the process has run out of file descriptors.
constexpr timeval kAcceptPause{0, 100'000};
constexpr int64_t kAcceptWarningNs = 60'000'000'000;  // at most one warning about it in this time

constexpr std::pair<evhttp_cmd_type, const char*> kMethods[] = {
    {EVHTTP_REQ_GET, "GET"},         {EVHTTP_REQ_POST, "POST"},       {EVHTTP_REQ_HEAD, "HEAD"},
    {EVHTTP_REQ_PUT, "PUT"},         {EVHTTP_REQ_DELETE, "DELETE"},   {EVHTTP_REQ_PATCH, "PATCH"},
    {EVHTTP_REQ_OPTIONS, "OPTIONS"}, {EVHTTP_REQ_CONNECT, "CONNECT"}, {EVHTTP_REQ_TRACE, "TRACE"}};

// All known methods are allowed, so that the handler refuses unsupported ones with its own message.
ev_uint16_t all_methods() {
  unsigned all = 0;
  for (const auto& [type, name] : kMethods) all |= type;
  return static_cast<ev_uint16_t>(all);
}

const char* method_name(evhttp_cmd_type type) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const auto& each) { return each.first == type; });
  return found == std::end(kMethods) ? "other" : found->second;
}

std::string decoded(const std::string& path) {
  size_t size = 0;
  char* bytes = evhttp_uridecode(path.c_str(), 0, &size);
  if (bytes == nullptr) return path;
  std::string text(bytes, size);
  std::free(bytes);
  return text;
}

// Disconnects a client whose input exceeds the largest possible request without completing one.
// This happens with an endless chunk length, which libevent's own limits do not catch.
void cut_endless_input(evbuffer* input, const evbuffer_cb_info*, void* connection) {
  auto* stream = static_cast<bufferevent*>(connection);
  size_t most = 0;
  bufferevent_getwatermark(stream, EV_READ, nullptr, &most);
  if (evbuffer_get_length(input) < most) return;
  bufferevent_trigger_event(stream, BEV_EVENT_READING | BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
}

// libevent refuses some requests itself (body or headers too large, not HTTP) with a small HTML
// page and offers no hook to change it. replace_page() recognises such pages in the output by the
// marks below, which no reply of a handler has, and replaces them by OpenAI's error object.
constexpr size_t kMostPageBytes = 1024;
constexpr std::string_view kPageEnd = "</BODY></HTML>\n";
constexpr std::string_view kPageType = "\r\nContent-Type: text/html\r\n";

std::string why_refused(int status, std::string_view reason, const HttpOptions& options) {
  if (status == HTTP_ENTITYTOOLARGE) {
    return fmt::format("the body is too large: expected at most {} bytes", options.most_body_bytes);
  }
  if (status == HTTP_BADREQUEST) {
    return fmt::format("expected a request of HTTP/1.1 with at most {} bytes of headers",
                       options.most_header_bytes);
  }
  return fmt::format("the request cannot be served: {}", reason);
}

std::string refusal(std::string_view status_line, const HttpOptions& options) {
  const std::string_view status = status_line.substr(status_line.find(' ') + 1);
  ApiError error;
  std::from_chars(status.data(), status.data() + status.size(), error.status);
  error.message = why_refused(error.status, status.substr(status.find(' ') + 1), options);
  const std::string body = error.json();
  return fmt::format(
      "{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status_line, body.size(), body);
}

// An output callback. libevent adds the last bytes of the page at once, before any of it is
// written; so the call that sees the end of the page sees all of it.
void replace_page(evbuffer* output, const evbuffer_cb_info* change, void* options) {
  const size_t size = evbuffer_get_length(output);
  if (change->n_added == 0 || size > kMostPageBytes) return;
  char bytes[kMostPageBytes];
  evbuffer_copyout(output, bytes, size);
  const std::string_view page(bytes, size);
  if (!page.starts_with("HTTP/") || !page.ends_with(kPageEnd)) return;
  if (page.find(kPageType) == page.npos) return;
  const std::string text =
      refusal(page.substr(0, page.find("\r\n")), *static_cast<const HttpOptions*>(options));
  evbuffer_drain(output, size);
  evbuffer_add(output, text.data(), text.size());
}

// Without free descriptors accept() fails at once and again, which would occupy the thread. So the
// listener pauses; new connections wait in the kernel's queue.
void pause_accepting(evconnlistener* listener, void*) {
  const int error = errno;
  static std::atomic<int64_t> next_warning_ns = INT64_MIN;
  if (const int64_t now = base::wall_ns(); now >= next_warning_ns) {
    next_warning_ns = now + kAcceptWarningNs;
    log::warn("http: cannot accept a connection: {}; new ones wait (raise ulimit -n)",
              std::strerror(error));
  }
  evconnlistener_disable(listener);
  event_base_once(
      evconnlistener_get_base(listener), -1, EV_TIMEOUT,
      [](int, short, void* of) { evconnlistener_enable(static_cast<evconnlistener*>(of)); },
      listener, &kAcceptPause);
}

// The port that a socket is bound to.
int port_of(evutil_socket_t socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

Exchange::Exchange(evhttp_request* request, HttpServer& server)
    : server_(server),
      request_(request),
      method_(method_name(evhttp_request_get_command(request))) {
  const char* path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  target_ = path == nullptr || *path == '\0' ? "/" : path;
  path_ = decoded(target_);
  if (const char* query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request))) {
    target_.append("?").append(query);
  }
  evbuffer* input = evhttp_request_get_input_buffer(request);
  body_.resize(evbuffer_get_length(input));
  evbuffer_copyout(input, body_.data(), body_.size());
  evhttp_connection_set_closecb(evhttp_request_get_connection(request), closed, this);
  set_timeouts(true);
}

Exchange::~Exchange() {
  unwatch();
  on_gone_ = nullptr;
  if (request_ == nullptr) return;
  if (!streams_) {
    reply(500, "application/json", ApiError{.status = 500, .message = "no reply"}.json());
    return;
  }
  evhttp_connection* connection = evhttp_request_get_connection(request_);
  evhttp_connection_set_closecb(connection, nullptr, nullptr);
  evhttp_connection_free(connection);
}

std::string Exchange::header(const char* name) const {
  if (request_ == nullptr) return "";
  const char* value = evhttp_find_header(evhttp_request_get_input_headers(request_), name);
  return value == nullptr ? "" : value;
}

std::string Exchange::query(const char* name) const {
  if (request_ == nullptr) return "";
  const char* text = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request_));
  evkeyvalq values = {};
  if (text == nullptr || evhttp_parse_query_str(text, &values) != 0) return "";
  const char* value = evhttp_find_header(&values, name);
  std::string found = value == nullptr ? "" : value;
  evhttp_clear_headers(&values);
  return found;
}

void Exchange::closed(evhttp_connection*, void* exchange) {
  static_cast<Exchange*>(exchange)->detach();
}

// The connection is closed. If the client closed it, the request has no connection any more and is
// ours to free; if we closed it (disconnect), libevent frees the request with the connection.
void Exchange::detach() {
  unwatch();
  if (evhttp_request_get_connection(request_) == nullptr) evhttp_request_free(request_);
  request_ = nullptr;
  if (const auto callback = std::exchange(on_gone_, nullptr)) callback();
}

// Registers the socket, so that clients_left() is called when the client leaves. REQUIRES: !gone().
void Exchange::watch() {
  bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_));
  watched_ = bufferevent_getfd(stream);
  epoll_event event{.events = EPOLLRDHUP | EPOLLET, .data = {.ptr = this}};
  ::epoll_ctl(server_.left_fd_, EPOLL_CTL_ADD, watched_, &event);
}

void Exchange::unwatch() {
  if (watched_ < 0) return;
  ::epoll_ctl(server_.left_fd_, EPOLL_CTL_DEL, std::exchange(watched_, -1), nullptr);
}

// Closes the connection; libevent then calls closed(), which calls detach().
void Exchange::disconnect() { evhttp_connection_free(evhttp_request_get_connection(request_)); }

// While a client waits for a reply it sends nothing, so there is no timeout for reading.
void Exchange::set_timeouts(bool waits_for_reply) {
  bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_));
  const timeval idle{server_.options_.idle_seconds, 0};
  bufferevent_set_timeouts(stream, waits_for_reply ? nullptr : &idle, &idle);
}

// Called before the last bytes of a reply. Afterwards the connection belongs to the next request,
// so this exchange no longer follows it.
void Exchange::start_reply() {
  unwatch();
  set_timeouts(false);
  evhttp_connection_set_closecb(evhttp_request_get_connection(request_), nullptr, nullptr);
}

void Exchange::add_header(const char* name, std::string_view value) {
  evhttp_add_header(evhttp_request_get_output_headers(request_), name, std::string(value).c_str());
}

void Exchange::reply(int status, std::string_view content_type, std::string_view body,
                     std::string_view retry_after) {
  if (request_ == nullptr) return;
  add_header("Content-Type", content_type);
  if (!retry_after.empty()) add_header("Retry-After", retry_after);
  start_reply();
  evbuffer* bytes = evbuffer_new();
  evbuffer_add(bytes, body.data(), body.size());
  bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_));
  evhttp_send_reply(std::exchange(request_, nullptr), status, nullptr, bytes);
  bufferevent_disable(stream,
                      EV_READ);  // evhttp_send_reply enabled it; nothing is read before the end
  evbuffer_free(bytes);
}

void Exchange::start_stream(std::string_view content_type) {
  if (request_ == nullptr) return;
  add_header("Content-Type", content_type);
  add_header("Cache-Control", "no-cache");
  streams_ = true;
  evhttp_send_reply_start(request_, 200, nullptr);
  const evkeyvalq* headers = evhttp_request_get_output_headers(request_);
  in_chunks_ = evhttp_find_header(headers, "Transfer-Encoding") != nullptr;  // not in HTTP/1.0
  // TCP_NODELAY: a small chunk must not wait for the acknowledgement of the previous one.
  bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_));
  bufferevent_disable(stream, EV_READ);
  const int at_once = 1;
  ::setsockopt(bufferevent_getfd(stream), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
}

void Exchange::send(std::string_view bytes) {
  if (request_ == nullptr) return;
  if (unsent_.empty()) {
    unsent_.resize(kChunkHead);
    server_.flush_later(shared_from_this());
  }
  unsent_ += bytes;
}

// The unsent bytes as they go over the wire, with the chunk's head written into the room in front.
// REQUIRES: unsent_ is not empty.
std::string_view Exchange::frame_unsent() {
  if (!in_chunks_) return std::string_view(unsent_).substr(kChunkHead);
  char digits[kChunkHead];
  const char* end =
      std::to_chars(digits, digits + sizeof(digits), unsent_.size() - kChunkHead, 16).ptr;
  const auto num_digits = static_cast<size_t>(end - digits);
  const size_t first = kChunkHead - 2 - num_digits;
  std::copy_n(digits, num_digits, unsent_.data() + first);
  unsent_[kChunkHead - 2] = '\r';
  unsent_[kChunkHead - 1] = '\n';
  unsent_ += "\r\n";
  return std::string_view(unsent_).substr(first);
}

// Errors of ::send are ignored here: the bytes go into libevent's queue, and the event loop reports
// the error of the socket.
void Exchange::flush() {
  if (request_ == nullptr || unsent_.empty()) return;
  evhttp_connection* connection = evhttp_request_get_connection(request_);
  bufferevent* stream = evhttp_connection_get_bufferevent(connection);
  evbuffer* unread = bufferevent_get_output(stream);
  std::string_view bytes = frame_unsent();
  // Only if nothing is queued, else the order of bytes would change.
  if (evbuffer_get_length(unread) == 0) {
    const ssize_t taken =
        ::send(bufferevent_getfd(stream), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken > 0) bytes.remove_prefix(static_cast<size_t>(taken));
  }
  if (!bytes.empty()) evbuffer_add(unread, bytes.data(), bytes.size());
  unsent_.clear();
  if (evbuffer_get_length(unread) > server_.options_.most_unread_bytes) disconnect();
}

// Bytes that are not flushed yet go into libevent's queue, so that they leave together with the end
// of the stream.
void Exchange::end() {
  if (request_ == nullptr) return;
  start_reply();
  bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_));
  if (!unsent_.empty()) {
    const std::string_view bytes = frame_unsent();
    bufferevent_write(stream, bytes.data(), bytes.size());
    unsent_.clear();
  }
  evhttp_send_reply_end(std::exchange(request_, nullptr));
  // Without chunks the end of the reply closes the connection, and `stream` may not exist any more.
  if (in_chunks_) bufferevent_disable(stream, EV_READ);
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : options_(options), handler_(std::move(handler)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(handler)));
  WIDEEP_TRY(server->start());
  return server;
}

Status HttpServer::start() {
  base_ = event_base_new();
  http_ = base_ == nullptr ? nullptr : evhttp_new(base_);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  left_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (http_ == nullptr || wake_fd_ < 0 || left_fd_ < 0) {
    return failed("http: the system refuses an event loop");
  }
  wake_ = event_new(base_, wake_fd_, EV_READ | EV_PERSIST, posted, this);
  event_add(wake_, nullptr);
  flush_ = event_new(base_, -1, 0, flush, this);
  left_ = event_new(base_, left_fd_, EV_READ | EV_PERSIST, clients_left, this);
  event_add(left_, nullptr);
  evhttp_set_bevcb(http_, connection_of, this);
  evhttp_set_allowed_methods(http_, all_methods());
  evhttp_set_max_body_size(http_, static_cast<ev_ssize_t>(options_.most_body_bytes));
  evhttp_set_max_headers_size(http_, static_cast<ev_ssize_t>(options_.most_header_bytes));
  evhttp_set_timeout(http_, options_.idle_seconds);
  evhttp_set_gencb(http_, handle, this);
  evhttp_bound_socket* bound = evhttp_bind_socket_with_handle(
      http_, options_.host.c_str(), static_cast<ev_uint16_t>(options_.port));
  if (bound == nullptr) {
    return failed(fmt::format("http: cannot listen on {} port {}: {}; choose another --port",
                              options_.host, options_.port, std::strerror(errno)));
  }
  port_ = port_of(evhttp_bound_socket_get_fd(bound));
  evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound), pause_accepting);
  return {};
}

HttpServer::~HttpServer() {
  for (const auto& timer : timers_) event_free(timer->timer);
  if (wake_ != nullptr) event_free(wake_);
  if (flush_ != nullptr) event_free(flush_);
  if (left_ != nullptr) event_free(left_);
  if (http_ != nullptr) evhttp_free(http_);
  if (base_ != nullptr) event_base_free(base_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
  if (left_fd_ >= 0) ::close(left_fd_);
}

void HttpServer::run() {
  const base::NoPipeSignals no_pipe_signals;
  event_base_dispatch(base_);
}

void HttpServer::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(call));
    if (posted_.size() > 1) return;  // the thread has been woken already and will take all calls
  }
  const uint64_t one = 1;
  // Cannot fail: the eventfd's counter is full only after 2⁶⁴ posts.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

void HttpServer::posted(int fd, short, void* self) {
  auto* server = static_cast<HttpServer*>(self);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(fd, &count, sizeof(count));
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(server->mutex_);
    calls.swap(server->posted_);
  }
  for (const auto& call : calls) call();  // without the lock: they may post
}

// flush() runs when the callback that the event loop is executing has returned. So all parts that
// it sends, for example the tokens of an iteration, leave in one write per connection.
void HttpServer::flush_later(std::shared_ptr<Exchange> exchange) {
  if (unflushed_.empty()) event_active(flush_, EV_WRITE, 0);
  unflushed_.push_back(std::move(exchange));
}

void HttpServer::flush(int, short, void* self) {
  std::vector<std::shared_ptr<Exchange>> all;
  all.swap(static_cast<HttpServer*>(self)->unflushed_);
  for (const auto& exchange : all) exchange->flush();
}

void HttpServer::stop() {
  post([this] { event_base_loopbreak(base_); });
}

// One event per epoll_wait: disconnecting one exchange may destroy others, whose pointers in a
// larger batch of events would then be invalid.
void HttpServer::clients_left(int fd, short, void*) {
  epoll_event event;
  while (::epoll_wait(fd, &event, 1, 0) == 1) static_cast<Exchange*>(event.data.ptr)->disconnect();
}

bufferevent* HttpServer::connection_of(event_base* base, void* self) {
  HttpOptions& options = static_cast<HttpServer*>(self)->options_;
  bufferevent* stream = bufferevent_socket_new(base, -1, 0);
  if (stream == nullptr) return nullptr;
  const size_t most = options.most_body_bytes + options.most_header_bytes + kInputSlack;
  bufferevent_setwatermark(stream, EV_READ, 0, most);
  evbuffer_add_cb(bufferevent_get_input(stream), cut_endless_input, stream);
  evbuffer_add_cb(bufferevent_get_output(stream), replace_page, &options);
  return stream;
}

void HttpServer::call_every(int milliseconds, std::function<void()> call) {
  timers_.push_back(std::make_unique<Timer>(Timer{nullptr, std::move(call)}));
  Timer* timer = timers_.back().get();
  timer->timer = event_new(
      base_, -1, EV_PERSIST, [](int, short, void* of) { static_cast<Timer*>(of)->call(); }, timer);
  const timeval every{milliseconds / 1000, milliseconds % 1000 * 1000};
  event_add(timer->timer, &every);
}

void HttpServer::handle(evhttp_request* request, void* self) {
  auto* server = static_cast<HttpServer*>(self);
  const auto exchange = std::make_shared<Exchange>(request, *server);
  server->handler_(exchange);
  if (!exchange->gone()) exchange->watch();
}

}  // namespace wideep::server
