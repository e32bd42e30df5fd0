// SPDX-License-Identifier: Apache-2.0
#include "server/exchange_work.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/printable.h"

namespace wideep::server {
namespace {

// Taken once: by the thread that does it, or by the serving thread, which drops it.
class WaitingWork {
 public:
  explicit WaitingWork(ExchangeWork::Work work) : work_(std::move(work)) {}

  ExchangeWork::Work take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(work_, nullptr);
  }

 private:
  std::mutex mutex_;
  ExchangeWork::Work work_;  // guarded by mutex_
};

}  // namespace

void ExchangeWork::add(const std::shared_ptr<Exchange>& exchange, Work work) {
  const uint64_t id = next_++;
  const auto waiting = std::make_shared<WaitingWork>(std::move(work));
  waiting_[id] = exchange;
  exchange->on_gone([this, id, waiting] {
    waiting->take();
    waiting_.erase(id);
  });
  thread_.add([this, id, waiting] {
    const Work taken = waiting->take();
    if (taken == nullptr) return;
    post_([this, id, rest = rest_of(taken)] { finish(id, rest); });
  });
}

ExchangeWork::Rest ExchangeWork::rest_of(const Work& work) const {
  try {
    return work();
  } catch (const std::exception& error) {
    const std::string why = base::printable(error.what());
    return [&replies = replies_, why](const std::shared_ptr<Exchange>& exchange) {
      const log::Field id{.name = "request_id", .value = exchange->request_id()};
      log::write({.level = log::Level::kError,
                  .text = fmt::format("http: a request could not be prepared, which is a fault of "
                                      "the server: {}",
                                      why),
                  .fields = std::span(&id, 1)});
      replies.refuse(exchange, {.status = 500,
                                .message = "the server failed to prepare this request; its log "
                                           "says why",
                                .code = "internal_error"});
    };
  }
}

void ExchangeWork::finish(uint64_t id, const Rest& rest) {
  const auto found = waiting_.extract(id);
  if (found.empty()) return;  // its client has left
  found.mapped()->on_gone(nullptr);
  rest(found.mapped());
}

}  // namespace wideep::server
