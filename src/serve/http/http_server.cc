// SPDX-License-Identifier: Apache-2.0
//
// Who notices that a connection must go may be in the middle of another one's work: so shedding and
// making room wait for the event that flushes, behind the present callback. Clients that leave are
// taken one at a time from their epoll, since to close one may close others. The listener pauses
// when descriptors or places for connections have run out, and new clients wait in the kernel's
// queue. Binding needs no event loop, so the process may fork after it.
#include "http/http_server.h"

#include <event2/event.h>
#include <event2/listener.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/no_pipe_signals.h"
#include "base/printable.h"
#include "base/try.h"

namespace wideep::server {
namespace {

// How long no connection is accepted after the process has run out of file descriptors.
constexpr timeval kAcceptPause{0, 100'000};
constexpr int64_t kAcceptWarningNs = 60'000'000'000;  // at most one warning about it in this time

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

// libevent would write to stderr itself, in no form of ours.
void log_of_libevent(int severity, const char* text) {
  if (severity == EVENT_LOG_DEBUG) return;
  const log::Level level = severity == EVENT_LOG_ERR    ? log::Level::kError
                           : severity == EVENT_LOG_WARN ? log::Level::kWarning
                                                        : log::Level::kInfo;
  const std::string line = fmt::format("http: {}", base::printable(text, 500));
  log::write({.level = level, .text = line});
}

// That a socket is bound to.
sockaddr_storage address_of(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

// The port that a socket is bound to.
int port_of(evutil_socket_t socket) {
  const sockaddr_storage address = address_of(socket);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// What to do about an address that cannot be listened on.
const char* remedy_for(int error) {
  switch (error) {
    case EADDRNOTAVAIL:
      return "choose a --host that is an address of this machine";
    case EACCES:
      return "ports below 1024 need a privilege: choose another --port";
    default:
      return "choose another --port";
  }
}

// A socket that is bound to the address; -1 (errno): none. What a socket refuses is known only when
// it listens, which is therefore part of it.
int listening_socket(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int reuse = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  if (::bind(socket, address.ai_addr, address.ai_addrlen) == 0 &&
      ::listen(socket, SOMAXCONN) == 0) {
    return socket;
  }
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

}  // namespace

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : options_(options), handler_(std::move(handler)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       Handler handler) {
  WIDEEP_TRY_ASSIGN(std::unique_ptr<HttpServer> server, bind(options, std::move(handler)));
  WIDEEP_TRY(server->begin());
  return server;
}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpOptions& options, Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(handler)));
  WIDEEP_TRY(server->bind_socket());
  return server;
}

Status HttpServer::begin(bool accepts) {
  event_set_log_callback(log_of_libevent);
  base_ = event_base_new();
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  left_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (base_ == nullptr || wake_fd_ < 0 || left_fd_ < 0) {
    return failed("http: the system refuses an event loop");
  }
  wake_ = event_new(base_, wake_fd_, EV_READ | EV_PERSIST, posted, this);
  event_add(wake_, nullptr);
  flush_ = event_new(base_, -1, 0, flush, this);
  left_ = event_new(base_, left_fd_, EV_READ | EV_PERSIST, clients_left, this);
  event_add(left_, nullptr);
  // What was posted before could not wake anybody.
  event_active(wake_, EV_READ, 0);
  if (!accepts) return {};
  listener_ =
      evconnlistener_new(base_, accepted, this, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0,
                         std::exchange(socket_, -1));
  if (listener_ == nullptr) return failed("http: the system refuses an event loop");
  evconnlistener_set_error_cb(listener_, pause_accepting);
  return {};
}

// Binds to the first address of the host that works, IPv4 first: clients that know it by
// "localhost" mostly try that.
Status HttpServer::bind_socket() {
  const addrinfo hints{
      .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* all = nullptr;
  const std::string port = std::to_string(options_.port);
  if (const int error = ::getaddrinfo(options_.host.c_str(), port.c_str(), &hints, &all);
      error != 0) {
    return failed(
        fmt::format("http: cannot listen on {} port {}: the host has no address: {}; "
                    "choose a --host that is an address of this machine",
                    options_.host, options_.port,
                    error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  }
  int socket = -1;
  int first_error = 0;
  for (const bool ipv4 : {true, false}) {
    for (const addrinfo* each = all; each != nullptr && socket < 0; each = each->ai_next) {
      if ((each->ai_family == AF_INET) != ipv4) continue;
      socket = listening_socket(*each);
      if (socket < 0 && first_error == 0) first_error = errno;
    }
  }
  ::freeaddrinfo(all);
  if (socket < 0) {
    return failed(fmt::format("http: cannot listen on {} port {}: {}; {}", options_.host,
                              options_.port, std::strerror(first_error), remedy_for(first_error)));
  }
  port_ = port_of(socket);
  socket_ = socket;
  RequestGuard::Options guard{.hosts = {},
                              .checks_origins = options_.guards_origins,
                              .has_key = options_.has_key,
                              .origins = options_.cors_origins};
  if (options_.guards_hosts) {
    guard.hosts = RequestGuard::hosts_of(options_.host, is_loopback(address_of(socket)),
                                         options_.allowed_hosts);
  }
  guard_ = RequestGuard(std::move(guard));
  return {};
}

HttpServer::~HttpServer() {
  // Each removes itself, and may end others through its exchange.
  while (!connections_.empty()) {
    const auto connection = connections_.begin()->second;
    connection->disconnect();
  }
  for (const auto& timer : timers_) event_free(timer->timer);
  if (wake_ != nullptr) event_free(wake_);
  if (flush_ != nullptr) event_free(flush_);
  if (left_ != nullptr) event_free(left_);
  if (listener_ != nullptr) evconnlistener_free(listener_);
  if (base_ != nullptr) event_base_free(base_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
  if (left_fd_ >= 0) ::close(left_fd_);
  if (socket_ >= 0) ::close(socket_);
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
  if (wake_fd_ < 0) return;  // begin() will look
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
  static_cast<HttpServer*>(self)->shed();
  static_cast<HttpServer*>(self)->make_room();
}

// Not at once: who has just written goes on with its connection.
void HttpServer::shed_later() { event_active(flush_, EV_WRITE, 0); }

// Disconnects who has left most unread, until the others are within the limit.
void HttpServer::shed() {
  while (totals_.unread > options_.max_unread_bytes_of_all) {
    const auto largest = std::ranges::max_element(
        connections_, {}, [](const auto& each) { return each.second->unread(); });
    if (largest == connections_.end() || largest->second->unread() == 0) return;
    const auto connection = largest->second;
    connection->disconnect();
  }
}

HeadVerdict HttpServer::check(const RequestHead& head, bool whole) {
  if (auto error = guard_.check(head)) return {.error = std::move(error)};
  return whole || !check_head_ ? HeadVerdict() : check_head_(head);
}

// Those that come now wait in the system's queue.
void HttpServer::pause_if_full() {
  if (listener_ == nullptr) return;
  if (is_full()) evconnlistener_disable(listener_);
  if (!is_full() && is_paused_) evconnlistener_enable(listener_);
  is_paused_ = is_full();
}

uint64_t HttpServer::became_idle(HttpConnection* connection) {
  idle_.emplace(next_idle_, connection);
  make_room_later();
  return next_idle_++;
}

// Not at once, as in shed_later().
void HttpServer::make_room_later() {
  if (is_full()) event_active(flush_, EV_WRITE, 0);
}

// Silent clients must not keep others away: the longest idle ones are closed. Some at once: who
// accepts clients in another process asks now and then only. The last idle one may have just come.
void HttpServer::make_room() {
  constexpr size_t kShare = 32;
  if (!is_full()) return;
  const size_t room = std::max<size_t>(options_.max_connections / kShare, 1);
  const auto is_over = [&] {
    return connections_.size() + room > options_.max_connections && idle_.size() > 1;
  };
  for (auto each = idle_.begin(); each != idle_.end() && is_over();) {
    const auto connection = (each++)->second->shared_from_this();
    if (!connection->has_input()) connection->disconnect();
  }
}

void HttpServer::stop() {
  post([this] { event_base_loopbreak(base_); });
}

// One event per epoll_wait: disconnecting one client may disconnect others, whose pointers in a
// larger batch of events would then be invalid.
void HttpServer::clients_left(int fd, short, void*) {
  epoll_event event;
  while (::epoll_wait(fd, &event, 1, 0) == 1) {
    static_cast<HttpConnection*>(event.data.ptr)->disconnect();
  }
}

void HttpServer::accepted(evconnlistener*, int socket, sockaddr*, int, void* self) {
  static_cast<HttpServer*>(self)->adopt(socket, nullptr, 0);
}

void HttpServer::adopt(int socket, std::unique_ptr<ConnectionJournal> journal, int64_t id,
                       bool is_suspect) {
  const auto connection = std::make_shared<HttpConnection>(ConnectionSetup{.base = base_,
                                                                           .left_fd = left_fd_,
                                                                           .options = options_,
                                                                           .owner = *this,
                                                                           .totals = totals_},
                                                           socket, std::move(journal), id);
  connections_.emplace(connection.get(), connection);
  pause_if_full();
  make_room_later();
  connection->start(is_suspect);
}

void HttpServer::forget(HttpConnection* connection) {
  if (on_closed_ && connection->id() != 0) on_closed_(connection->id());
  connections_.erase(connection);
  pause_if_full();
}

bool HttpServer::has_unread() const {
  return std::ranges::any_of(connections_,
                             [](const auto& each) { return each.second->has_unread(); });
}

void HttpServer::watch(int fd, std::function<void()> readable) {
  timers_.push_back(std::make_unique<Timer>(Timer{nullptr, std::move(readable)}));
  Timer* timer = timers_.back().get();
  timer->timer = event_new(
      base_, fd, EV_READ | EV_PERSIST,
      [](int, short, void* of) { static_cast<Timer*>(of)->call(); }, timer);
  event_add(timer->timer, nullptr);
}

void HttpServer::call_every(int milliseconds, std::function<void()> call) {
  timers_.push_back(std::make_unique<Timer>(Timer{nullptr, std::move(call)}));
  Timer* timer = timers_.back().get();
  timer->timer = event_new(
      base_, -1, EV_PERSIST, [](int, short, void* of) { static_cast<Timer*>(of)->call(); }, timer);
  const timeval every{milliseconds / 1000, milliseconds % 1000 * 1000};
  event_add(timer->timer, &every);
}

void HttpServer::call_in(int seconds, std::function<void()> call) {
  const timeval time{seconds, 0};
  event_base_once(
      base_, -1, EV_TIMEOUT,
      [](int, short, void* of) {
        const std::unique_ptr<std::function<void()>> once(static_cast<std::function<void()>*>(of));
        (*once)();
      },
      new std::function<void()>(std::move(call)), &time);
}

}  // namespace wideep::server
