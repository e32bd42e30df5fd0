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
#include <utility>
#include <vector>

namespace wideep::server {

class HttpServer;

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
  void cancel();

 private:
  struct Attempt;

  HttpServer& http_;
  std::shared_ptr<Attempt> attempt_;  // null: none is under way
};

}  // namespace wideep::server
