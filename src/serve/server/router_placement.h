// SPDX-License-Identifier: Apache-2.0
//
// Finds out, for one request, what replicas have of its prompt, in kPlaceMs at most:
//
//   start ── other thread: what the replicas were sent ──▶ where pages are known, and the body is
//   long enough to be worth the way: a replica's POST /prompt_tokens ── other thread: pages ──▶ done
//
// Whatever fails or is late, `done` gets what is known by then.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/router_ask.h"
#include "server/router_prefixes.h"

struct event;

namespace wideep::server {

// The replicas, as those that know the names of a prompt's pages.
class PageNameSource {
 public:
  virtual ~PageNameSource() = default;
  // Which one to ask, and where; nullopt: nobody who could, or it would be of no use.
  virtual std::optional<size_t> choose_for_names() = 0;
  virtual RouterAsk::Question question_of(size_t replica) const = 0;
  // It has none, or is late: it is not chosen for this time.
  virtual void rest(size_t replica, std::chrono::seconds time) = 0;
};

class RouterPlacement : public std::enable_shared_from_this<RouterPlacement> {
 public:
  static constexpr int kPlaceMs = 200;
  static constexpr size_t kMinNamedBytes = 2048;

  struct Prompt {
    std::string path;  // REQUIRES: is_for_text(path)
    RouterPrefixes::Body body;
    std::vector<std::pair<std::string, std::string>> headers;  // to ask with
  };
  // Null: nothing is known.
  using Done = std::function<void(std::shared_ptr<const PromptMatch>)>;

  RouterPlacement(HttpServer& http, RouterPrefixes& prefixes, PageNameSource& source)
      : http_(http), prefixes_(prefixes), source_(source), ask_(http) {}
  ~RouterPlacement() { cancel(); }
  RouterPlacement(const RouterPlacement&) = delete;
  RouterPlacement& operator=(const RouterPlacement&) = delete;

  // Calls `done` once, perhaps at once, unless it is cancelled. REQUIRES: not called before.
  void start(Prompt prompt, Done done);
  void cancel();

 private:
  RouterPrefixes::OnMatch take_later(bool asks_names);
  void take(std::shared_ptr<const PromptMatch> match, bool asks_names);
  void take_names(int status, const std::string& body);
  static void on_late(int, short, void* self);
  void finish();

  HttpServer& http_;
  RouterPrefixes& prefixes_;
  PageNameSource& source_;
  Prompt prompt_;
  Done done_;  // null: it has been called, or shall not be
  RouterAsk ask_;
  std::optional<size_t> asked_;  // the replica
  event* late_ = nullptr;        // the end of the time
  std::shared_ptr<const PromptMatch> match_;
};

}  // namespace wideep::server
