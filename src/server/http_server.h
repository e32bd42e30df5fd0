// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 over libevent: one thread serves every connection, so that a slow reader costs memory
// (up to a limit) and nobody else's time.
//
// What the calls of one waking send on a connection leaves in one write when they have returned,
// past libevent's queue, which takes three system calls for a chunk: only what the socket does not
// take at once waits there.
//
// While a request has no reply, or its reply is being written, nothing is read from its client:
// what it sends meanwhile waits in its own system. That it leaves is seen without reading.
//
// Thread safety: everything on the thread that calls run(), but for post() and stop().
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
  // A client that neither sends nor reads for so long is cut off, but for one that waits for its
  // reply.
  int idle_seconds = 50;
  // A reader that is so far behind is cut off.
  size_t most_unread_bytes = size_t{4} << 20;
};

class HttpServer;

// One request and its reply: reply(), or start_stream(), send() …, end(). Lives as long as somebody
// holds it; once the client is gone, sending does nothing.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(evhttp_request* request, HttpServer& server);
  ~Exchange();  // what was not replied to gets an error; a stream that has begun is cut
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const std::string& method() const { return method_; }  // "GET"
  const std::string& path() const { return path_; }      // decoded, without the query
  const std::string& target() const { return target_; }  // path and query as they came
  const std::string& body() const { return body_; }
  std::string header(const char* name) const;  // "": not there
  std::string query(const char* name) const;   // likewise: of "?name=value"

  void reply(int status, std::string_view content_type, std::string_view body,
             std::string_view retry_after = {});
  void start_stream(std::string_view content_type);
  void send(std::string_view bytes);
  void end();

  bool gone() const { return request_ == nullptr; }
  // Called once, when the client leaves (or closes its side), or is cut off, before the reply has
  // ended.
  void on_gone(std::function<void()> callback) { on_gone_ = std::move(callback); }

 private:
  friend class HttpServer;
  static void closed(evhttp_connection*, void* exchange);
  void leave();
  void watch();
  void unwatch();
  void cut();
  void start_reply();
  void set_patience(bool waits_for_reply);
  void add_header(const char* name, std::string_view value);
  void flush();
  std::string_view frame_unsent();

  HttpServer& server_;       // not after its end, when there is no request either
  evhttp_request* request_;  // null: the client is gone, or the reply has ended
  bool streams_ = false;
  bool in_chunks_ = false;
  std::string unsent_;  // room for a chunk's head, then what was sent since the last flush
  int watched_ = -1;    // the socket, while the server is told when its client leaves
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

  // What else happens on the serving thread: connections to other servers.
  event_base* loop() const { return base_; }

  // Serves until stop().
  void run();
  // Any thread: calls it on the serving thread, in the order of posting.
  void post(std::function<void()> call);
  // Any thread. Connections are closed; replies that have not ended are cut.
  void stop();
  // Calls it every so often on the serving thread, from now on.
  void call_every(int milliseconds, std::function<void()> call);

 private:
  friend class Exchange;
  HttpServer(const HttpOptions& options, Handler handler);
  Status start();
  void flush_later(std::shared_ptr<Exchange> exchange);
  static void flush(int fd, short what, void* server);
  static void handle(evhttp_request* request, void* server);
  static void posted(int fd, short what, void* server);
  static void see_who_left(int fd, short what, void* server);
  static bufferevent* connection_of(event_base* base, void* server);

  HttpOptions options_;
  Handler handler_;
  int port_ = 0;
  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  event* wake_ = nullptr;
  int wake_fd_ = -1;
  event* flush_ = nullptr;
  // Whose clients are still there. An epoll of its own: libevent's would tell of bytes as well, and
  // does not tell a resetting client from them.
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
