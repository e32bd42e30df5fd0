// SPDX-License-Identifier: Apache-2.0
//
// Which beginnings of prompts the replicas have, for `wideep route --policy prefix`. Two sources:
//
//   pages   what a replica's KV events tell (router_pages.h): exact, where it tells them and the
//           names of a prompt's pages are known
//   index   what it was sent lately (router_prefix_index.h): a guess, always there
//
// Where pages are known they count, and beside them only what was sent so lately that its pages may
// be about to be told.
//
// Reading bodies and replies takes up to a second, so all is done by one thread, in the order of the
// calls. What requests add to its queue has bounds; what is over them is dropped.
//
// Thread safety: one thread makes all calls; callbacks come on the other one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/work_thread.h"
#include "server/router_pages.h"
#include "server/router_prefix_index.h"
#include "wideep/status.h"

namespace wideep::server {

// What is known of a request's prompt.
struct PromptMatch {
  uint64_t bytes = 0;           // of the prompt
  std::vector<uint64_t> chain;  // names of its chunks
  std::vector<uint64_t> known;  // [replicas] bytes that it need not compute
  bool is_told = true;          // replicas tell the pages of such prompts
  bool is_exact = false;        // the names of its pages were known
  uint64_t num_tokens = 0;      // of the prompt; 0: not known
  bool can_divide = false;      // between two replicas (router_divided_body.h)
};

class RouterPrefixes {
 public:
  // How long a replica is taken to have what it was sent, and how long beside what it tells itself.
  static constexpr uint32_t kSentSeconds = 600;
  static constexpr uint32_t kOnItsWaySeconds = 30;

  struct Limits {
    size_t max_entries = size_t{1} << 20;       // of the index
    size_t max_queue = 1024;                    // calls for requests
    size_t max_queue_bytes = size_t{64} << 20;  // of their bodies
  };

  RouterPrefixes(size_t num_replicas, const Limits& limits);
  RouterPrefixes(const RouterPrefixes&) = delete;
  RouterPrefixes& operator=(const RouterPrefixes&) = delete;

  using Body = std::shared_ptr<const std::string>;
  // Null: the body has no prompt that can be read.
  using OnMatch = std::function<void(std::shared_ptr<const PromptMatch>)>;
  // False: the queue is full; `done` is not called.
  bool match(const std::string& path, Body body, OnMatch done);
  // The same with the replica's reply to POST /prompt_tokens. Where it is none, the match is as
  // before.
  bool match_pages(std::shared_ptr<const PromptMatch> match, std::string reply, OnMatch done);
  // The replica was sent this prompt. Dropped where the queue is full.
  void sent(std::shared_ptr<const PromptMatch> match, size_t replica);

  // The replica has begun anew, or may have: what it was sent does not count.
  void forget_sent(size_t replica);
  // Its pages are not known any more.
  void forget_pages(size_t replica);
  // What the replica tells. After an error nothing is known of its pages. REQUIRES: one call of a
  // replica at a time (the queue has no bound for them).
  using OnPosition = std::function<void(Result<ReplicaPages::Position>)>;
  void take_snapshot(size_t replica, std::string reply, OnPosition done);
  void take_events(size_t replica, std::string reply, const ReplicaPages::Position& after,
                   OnPosition done);

 private:
  bool add(size_t bytes, std::function<void()> call);
  std::shared_ptr<PromptMatch> read(const std::string& path, const std::string& body) const;
  void add_pages(const PageNames& names, PromptMatch* match) const;

  const Limits limits_;
  std::atomic<size_t> num_queued_ = 0, queued_bytes_ = 0;  // of requests
  // Of the other thread.
  PrefixIndex index_;
  std::vector<ReplicaPages> pages_;  // [replicas]
  base::WorkThread thread_;          // last: it uses the members above
};

}  // namespace wideep::server
