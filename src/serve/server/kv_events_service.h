// SPDX-License-Identifier: Apache-2.0
//
// KV events over HTTP: what all ranks know, for readers that come late, and the batches after that,
// as a long poll. A reader takes a snapshot, and then asks for what comes after its number; 410
// tells it to begin again.
//
// Thread safety: the serving thread, but for has_waiting().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "http/exchange.h"
#include "kv_events/event_log.h"
#include "server/exchange_work.h"
#include "server/replies.h"

namespace wideep::server {

class KvEventsService {
 public:
  // log: null: there are no events, and no endpoint is called. Both outlive it.
  KvEventsService(const kv_events::EventLog* log, Replies& replies)
      : log_(log), replies_(replies) {}

  // Lets replies be written on a thread of their own.
  void connect(std::function<void(std::function<void()>)> post) { work_.connect(std::move(post)); }
  void join() { work_.join(); }

  void snapshot(const std::shared_ptr<Exchange>& exchange);
  void events(const std::shared_ptr<Exchange>& exchange);

  // Whether a client waits for a batch. Any thread; one that has added a batch before sees every
  // client that has not seen the batch.
  bool has_waiting() const { return num_waiting_ > 0; }
  // Answers those who wait for what is there now, or have waited for long enough. To be called after
  // batches were added while has_waiting(), and every second.
  void look();
  // From now on nobody waits.
  void end();

 private:
  struct Waiting {
    std::shared_ptr<Exchange> exchange;
    uint64_t after = 0;
    int64_t until_ns = 0;
  };
  bool answer(const Waiting& waiting);
  void reply_apart(const std::shared_ptr<Exchange>& exchange, std::function<std::string()> write);

  const kv_events::EventLog* const log_;
  Replies& replies_;
  std::map<uint64_t, Waiting> waiting_;
  std::atomic<size_t> num_waiting_ = 0;  // of waiting_
  uint64_t next_ = 0;
  bool ends_ = false;
  ExchangeWork work_{replies_};  // last: it uses the members above
};

}  // namespace wideep::server
