// SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 server on libevent. One thread serves all connections without blocking, so a slow
// reader costs memory (up to a limit) but does not delay others.
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
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

struct bufferevent;
struct event;
struct event_base;
struct evhttp;
struct evhttp_connection;
struct evhttp_request;

namespace wideep::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any that is free
  size_t most_body_bytes = size_t{8} << 20;
  size_t most_header_bytes = 16 << 10;
  // A client that neither sends nor reads for this time is disconnected, unless it waits for a
  // reply.
  int idle_seconds = 50;
  // A client with more unread bytes of a stream is disconnected.
  size_t most_unread_bytes = size_t{4} << 20;
};

class HttpServer;

// One request and its reply: either reply(), or start_stream(), send() …, end(). Held by whoever
// answers. After the client has left, these calls do nothing.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(evhttp_request* request, HttpServer& server);
  ~Exchange();  // without a reply: replies with status 500; a stream without end() is cut
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const std::string& method() const { return method_; }  // "GET"
  const std::string& path() const { return path_; }      // decoded, without the query
  const std::string& target() const { return target_; }  // path and query, not decoded
  const std::string& body() const { return body_; }
  std::string header(const char* name) const;  // "" if absent
  std::string query(const char* name) const;   // value of "?name=value"; "" if absent

  void reply(int status, std::string_view content_type, std::string_view body,
             std::string_view retry_after = {});
  void start_stream(std::string_view content_type);
  void send(std::string_view bytes);
  void end();

  bool gone() const { return request_ == nullptr; }
  // Sets a function that is called once if the client leaves (or closes its side), or is
  // disconnected, before the reply has ended.
  void on_gone(std::function<void()> callback) { on_gone_ = std::move(callback); }

 private:
  friend class HttpServer;
  static void closed(evhttp_connection*, void* exchange);
  void detach();
  void watch();
  void unwatch();
  void disconnect();
  void start_reply();
  void set_timeouts(bool waits_for_reply);
  void add_header(const char* name, std::string_view value);
  void flush();
  std::string_view frame_unsent();

  HttpServer& server_;       // may be destroyed earlier, but only when request_ is null
  evhttp_request* request_;  // null: the client has left, or the reply has ended
  bool streams_ = false;
  bool in_chunks_ = false;  // chunked transfer encoding
  std::string unsent_;  // kChunkHead bytes for a chunk's head, then the bytes since the last flush
  int watched_ = -1;    // the socket, while registered with HttpServer::left_fd_
  std::string method_, path_, target_, body_;
  std::function<void()> on_gone_;
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // Listens. Errors (failed): the address is in use or not ours.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

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

 private:
  friend class Exchange;
  HttpServer(const HttpOptions& options, Handler handler);
  Status start();
  void flush_later(std::shared_ptr<Exchange> exchange);
  static void flush(int fd, short what, void* server);
  static void handle(evhttp_request* request, void* server);
  static void posted(int fd, short what, void* server);
  static void clients_left(int fd, short what, void* server);
  static bufferevent* connection_of(event_base* base, void* server);

  HttpOptions options_;
  Handler handler_;
  int port_ = 0;
  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  event* wake_ = nullptr;
  int wake_fd_ = -1;
  event* flush_ = nullptr;
  // An epoll of its own that reports only clients that leave. libevent's epoll would also report
  // bytes to read, and does not distinguish a connection reset from them.
  int left_fd_ = -1;
  event* left_ = nullptr;
  std::vector<std::shared_ptr<Exchange>> unflushed_;
  struct Timer {
    event* timer = nullptr;
    std::function<void()> call;
  };
  std::vector<std::unique_ptr<Timer>> timers_;

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
};

}  // namespace wideep::server
