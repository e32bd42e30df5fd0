// SPDX-License-Identifier: Apache-2.0
//
// The part of a divided request that computes its prompt: one request to one replica, over a
// connection of its own. While it runs the replica's work has it.
//
// Whoever destroys this closes the connection, and the replica stops.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/router_ask.h"
#include "server/router_replicas.h"

namespace wideep::server {

class RouterPrefill {
 public:
  enum class End : uint8_t {
    kComputed,
    kWrong,    // something is wrong with the request
    kRefused,  // nothing was computed: it is full, ends, or cannot be reached
    kLost,     // it was reached, or has failed (500), and perhaps has computed a part
  };
  struct Request {
    std::string target;
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;
    uint64_t prompt_bytes = 0;  // that it has to compute
  };
  // reply: of kComputed.
  using Ended = std::function<void(End end, const std::string& reply)>;

  RouterPrefill(HttpServer& http, RouterReplicas& replicas, RouterReplica& replica);
  ~RouterPrefill();
  RouterPrefill(const RouterPrefill&) = delete;
  RouterPrefill& operator=(const RouterPrefill&) = delete;

  // Calls `ended` later, once; it may destroy this. REQUIRES: not called before.
  void start(const Request& request, Ended ended);
  // Gives up if the replica has not been reached in time, or hangs. Called every now and then.
  void check(std::chrono::steady_clock::time_point now);

 private:
  bool is_long() const;
  void take(int status, const std::string& reply);

  RouterReplicas& replicas_;
  RouterReplica& replica_;
  RouterAsk ask_;
  Ended ended_;
  uint64_t prompt_bytes_ = 0;
  bool connected_ = false;
  std::chrono::steady_clock::time_point connect_by_;
};

}  // namespace wideep::server
