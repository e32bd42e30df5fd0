// SPDX-License-Identifier: Apache-2.0
//
// Follows the KV events of one replica: a snapshot, then events as they come.
//
//   cold ── snapshot 200 ──▶ known ──┐ events 200: asked again at once; if it tells nothing
//     ▲                        │  ▲──┘ without having waited (it ends), when the next second begins
//     └── 410, gap, no answer ─┘
//
// A replica that does not tell (another status) is asked again now and then.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "server/router_ask.h"
#include "server/router_pages.h"
#include "server/router_prefixes.h"

namespace wideep::server {

class RouterPageWatch {
 public:
  struct Target {
    size_t replica = 0;  // its index
    std::string host, numbers;
    int port = 0;
    std::string key;  // "": none
  };
  RouterPageWatch(HttpServer& http, RouterPrefixes& prefixes);

  // Begins with this replica, after one that it has lost. REQUIRES: before the first check().
  void follow(Target target);
  // Called every second while the replica is healthy: begins, goes on, or begins again when it is
  // time.
  void check();
  // The replica cannot be reached or is not healthy, and prefixes have forgotten it.
  void lost();
  // Whether the replica's pages are known.
  bool is_known() const { return is_known_; }
  size_t num_pages() const { return is_known_ ? position_.num_pages : 0; }

 private:
  using Clock = std::chrono::steady_clock;

  RouterAsk::Question question(std::string target, int timeout_ms) const;
  void ask_events();
  void take(const Result<ReplicaPages::Position>& position);
  std::function<void(Result<ReplicaPages::Position>)> take_later();
  void complain(const std::string& what);
  void begin_anew(std::chrono::seconds wait);

  HttpServer& http_;
  RouterPrefixes& prefixes_;
  Target target_;
  RouterAsk ask_;
  bool is_known_ = false;
  bool is_read_ = false;  // a reply is being read by the other thread
  uint64_t epoch_ = 0;    // what was under way in one before does not count
  ReplicaPages::Position position_;
  bool has_complained_ = false;  // since the last good reply
  Clock::time_point next_ = {};
  Clock::time_point asked_ = {};  // when it was asked for events last
};

}  // namespace wideep::server
