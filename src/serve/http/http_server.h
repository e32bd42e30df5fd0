// SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 server on libevent's event loop. One thread serves all connections without blocking,
// so a slow reader costs memory (up to a limit) but does not delay others. A handler that takes
// longer than a millisecond delays all: such work belongs on another thread, which posts its
// result.
//
// Requests are read by RequestReader (http_request_reader.h), strictly; connections are described
// in http_connection.h.
//
// Streams: all parts that are sent on a connection during one pass of the event loop leave in one
// write at the end of the pass. The write goes directly to the socket, because libevent's queue
// takes three system calls per chunk; only what the socket does not accept goes into that queue.
//
// While a request waits for its reply, or the reply is being written, the server does not read from
// its client; pipelined requests stay in the kernel's buffers. It still notices that the client
// leaves, through an epoll descriptor of its own.
//
// Thread safety: everything on the thread that calls run(), except post() and stop().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"
#include "http/http_connection.h"
#include "http/http_options.h"
#include "http/request_guard.h"
#include "wideep/status.h"

struct addrinfo;
struct event;
struct event_base;
struct evconnlistener;
struct sockaddr;

namespace wideep::server {

class HttpServer : private ConnectionOwner {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // Listens. Errors (failed): the host has no address; the address is in use or not ours.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, Handler handler);
  // The first half of listen(): has no event loop yet, so the process may fork.
  static Result<std::unique_ptr<HttpServer>> bind(const HttpOptions& options, Handler handler);
  // The second half. accepts: whether clients are accepted here, or in another process, which
  // passes them on (adopt). Errors (failed): the system refuses an event loop.
  Status begin(bool accepts = true);
  ~HttpServer() override;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Judges requests by their head, before their bodies are read: they are on their way to
  // `handler` else, which judges those that came in one piece. Before begin().
  using HeadCheck = std::function<HeadVerdict(const RequestHead&)>;
  void check_heads(HeadCheck check) { check_head_ = std::move(check); }

  int port() const { return port_; }
  int socket() const { return socket_; }  // that listens

  // Serves a connection that another process has accepted, under the caller's id. is_suspect: a
  // process that served it has died of itself, perhaps because of it. Serving thread.
  void adopt(int socket, std::unique_ptr<ConnectionJournal> journal, int64_t id,
             bool is_suspect = false);
  // Called with every request that is over: its reply has been written, or its client has left.
  // Before run().
  using OnEnded = std::function<void(const RequestRecord&)>;
  void on_ended(OnEnded callback) { on_ended_ = std::move(callback); }
  // Called with the id of every such connection that is closed.
  void on_closed(std::function<void(int64_t id)> callback) { on_closed_ = std::move(callback); }
  const ConnectionTotals& totals() const { return totals_; }
  // Whether a client has yet to take bytes of a complete reply.
  bool has_unread() const;
  // Calls `readable` on the serving thread while the descriptor has something to read. Before
  // run().
  void watch(int fd, std::function<void()> readable);

  // The event loop of the serving thread, for connections to other servers.
  event_base* loop() const { return base_; }

  // Serves until stop().
  void run();
  // Any thread: runs `call` on the serving thread, in the order of posting.
  void post(std::function<void()> call);
  // Any thread: makes run() return. The destructor closes the connections and cuts unfinished
  // replies.
  void stop();
  // Runs `call` periodically on the serving thread, until the server is destroyed.
  void call_every(int milliseconds, std::function<void()> call);
  // Runs `call` once on the serving thread, after this time.
  void call_in(int seconds, std::function<void()> call);

 private:
  HttpServer(const HttpOptions& options, Handler handler);
  Status bind_socket();
  void handle(const std::shared_ptr<Exchange>& exchange) override { handler_(exchange); }
  bool watches() const override { return on_ended_ != nullptr; }
  void ended(const RequestRecord& record) override { on_ended_(record); }
  void flush_later(std::shared_ptr<Exchange> exchange) override;
  HeadVerdict check(const RequestHead& head, bool whole) override;
  void shed_later() override;
  void shed();
  bool is_full() const { return connections_.size() >= options_.max_connections; }
  void pause_if_full();
  void make_room();
  void make_room_later();
  uint64_t became_idle(HttpConnection* connection) override;
  void no_longer_idle(uint64_t number) override { idle_.erase(number); }
  void forget(HttpConnection* connection) override;
  static void accepted(evconnlistener*, int socket, sockaddr*, int, void* server);
  static void flush(int fd, short what, void* server);
  static void posted(int fd, short what, void* server);
  static void clients_left(int fd, short what, void* server);

  HttpOptions options_;
  Handler handler_;
  int port_ = 0;
  int socket_ = -1;  // until the listener owns it
  std::function<void(int64_t)> on_closed_;
  OnEnded on_ended_;
  event_base* base_ = nullptr;
  evconnlistener* listener_ = nullptr;
  std::map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  std::map<uint64_t, HttpConnection*> idle_;  // in the order in which they have become so
  uint64_t next_idle_ = 1;
  event* wake_ = nullptr;
  int wake_fd_ = -1;
  event* flush_ = nullptr;
  // An epoll of its own that reports only clients that leave. libevent's epoll would also report
  // bytes to read, and does not distinguish a connection reset from them.
  int left_fd_ = -1;
  event* left_ = nullptr;
  std::vector<std::shared_ptr<Exchange>> unflushed_;
  RequestGuard guard_;
  HeadCheck check_head_;
  ConnectionTotals totals_;
  bool is_paused_ = false;  // there are as many connections as there may be
  struct Timer {
    event* timer = nullptr;
    std::function<void()> call;
  };
  std::vector<std::unique_ptr<Timer>> timers_;  // and watched descriptors

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
};

}  // namespace wideep::server
