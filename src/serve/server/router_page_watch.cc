// SPDX-License-Identifier: Apache-2.0
#include "server/router_page_watch.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "http/http_server.h"

namespace wideep::server {
namespace {

constexpr size_t kMaxEventBytes = size_t{64} << 20;
constexpr int kSnapshotMs = 10'000;
// How long a replica may wait for an event, and the timeout beyond it.
constexpr int kEventSeconds = 20;
constexpr int kEventMs = (kEventSeconds + 5) * 1000;
// Until a replica is asked again that does not tell, that has lost the thread or that said what
// cannot be read.
constexpr std::chrono::seconds kAbsentWait{30}, kGapWait{0}, kErrorWait{5};
// Who tells nothing any sooner is not asked again at once.
constexpr std::chrono::seconds kShortestWait{1};

}  // namespace

RouterPageWatch::RouterPageWatch(HttpServer& http, RouterPrefixes& prefixes)
    : http_(http), prefixes_(prefixes), ask_(http) {}

void RouterPageWatch::follow(Target target) {
  target_ = std::move(target);
  has_complained_ = false;
}

RouterAsk::Question RouterPageWatch::question(std::string target, int timeout_ms) const {
  std::vector<std::pair<std::string, std::string>> headers;
  if (!target_.key.empty()) headers.emplace_back("Authorization", "Bearer " + target_.key);
  return {.host = target_.host,
          .numbers = target_.numbers,
          .port = target_.port,
          .target = std::move(target),
          .timeout_ms = timeout_ms,
          .max_reply_bytes = kMaxEventBytes,
          .headers = std::move(headers)};
}

void RouterPageWatch::check() {
  if (is_read_ || ask_.waits() || Clock::now() < next_) return;
  if (is_known_) return ask_events();
  ask_.ask(question("/v1/kv_events/snapshot?tokens=0", kSnapshotMs),
           [this](int status, const std::string& body) {
             if (status == 401) complain("it wants its admin key (--replica-key-file)");
             if (status != 200) return begin_anew(status == 0 ? kErrorWait : kAbsentWait);
             is_read_ = true;
             prefixes_.take_snapshot(target_.replica, body, take_later());
           });
}

void RouterPageWatch::ask_events() {
  asked_ = Clock::now();
  ask_.ask(
      question(fmt::format("/v1/kv_events?after={}&wait={}", position_.sequence, kEventSeconds),
               kEventMs),
      [this](int status, const std::string& body) {
        // Whoever breaks off has perhaps died; if so, it knows nothing when it is back.
        if (status == 0) prefixes_.forget_sent(target_.replica);
        if (status != 200) return begin_anew(status == 410 ? kGapWait : kErrorWait);
        is_read_ = true;
        prefixes_.take_events(target_.replica, body, position_, take_later());
      });
}

// A callback for the other thread, which may outlive this.
std::function<void(Result<ReplicaPages::Position>)> RouterPageWatch::take_later() {
  return [this, http = &http_, epoch = epoch_](const Result<ReplicaPages::Position>& position) {
    http->post([this, epoch, position] {
      if (epoch == epoch_) take(position);
    });
  };
}

void RouterPageWatch::take(const Result<ReplicaPages::Position>& position) {
  is_read_ = false;
  if (!position.ok()) {
    complain(position.status().message());
    return begin_anew(kErrorWait);
  }
  has_complained_ = false;
  const bool told_nothing = is_known_ && position->sequence == position_.sequence &&
                            Clock::now() - asked_ < kShortestWait;
  position_ = *position;
  is_known_ = true;
  if (!told_nothing) ask_events();
}

void RouterPageWatch::complain(const std::string& what) {
  if (std::exchange(has_complained_, true)) return;
  log::warn("KV events of http://{}:{}: {}; they are asked for again, and this is said once",
            target_.host, target_.port, what);
}

void RouterPageWatch::begin_anew(std::chrono::seconds wait) {
  if (std::exchange(is_known_, false)) prefixes_.forget_pages(target_.replica);
  next_ = Clock::now() + wait;
}

void RouterPageWatch::lost() {
  ++epoch_;
  ask_.cancel();
  is_read_ = false;
  is_known_ = false;
  next_ = {};
}

}  // namespace wideep::server
