// SPDX-License-Identifier: Apache-2.0
//
// One question of the router's own to a replica, over a connection of its own, on the event loop of
// an HTTP server: its health, its KV events, a prompt's tokens.
//
// Thread safety: the serving thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct evhttp_connection;

namespace wideep::server {

class HttpServer;

// Whether a connection to a replica has been accepted.
bool is_connected(evhttp_connection* connection);
// Whether the body of a replica's 503 says that it drains: it lets what runs end.
inline bool says_draining(std::string_view body) { return body.find("\"draining\"") != body.npos; }

class RouterAsk {
 public:
  struct Question {
    std::string host;     // for the header
    std::string numbers;  // numeric address
    int port = 0;
    std::string target;
    int timeout_ms = 0;  // without a byte
    size_t max_reply_bytes = 0;
    // POST with this body; null: GET. Read before ask() returns.
    const std::string* body = nullptr;
    std::vector<std::pair<std::string, std::string>> headers = {};
  };
  // status: 0: there was no whole reply.
  using Answer = std::function<void(int status, const std::string& body)>;

  explicit RouterAsk(HttpServer& http) : http_(http) {}
  ~RouterAsk() { cancel(); }
  RouterAsk(const RouterAsk&) = delete;
  RouterAsk& operator=(const RouterAsk&) = delete;

  // Calls `answer` later, once, unless it is cancelled. REQUIRES: !waits().
  void ask(const Question& question, Answer answer);
  bool waits() const { return attempt_ != nullptr; }
  // Whether the replica's machine has accepted the connection. REQUIRES: waits().
  bool is_connected() const;
  void cancel();

 private:
  struct Attempt;

  HttpServer& http_;
  std::shared_ptr<Attempt> attempt_;  // null: none is under way
};

}  // namespace wideep::server
