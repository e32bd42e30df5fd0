// SPDX-License-Identifier: Apache-2.0
//
// What takes longer than the serving thread may: done for one exchange after the other on a thread
// of its own, while the serving thread goes on with the streams. An exchange stays on the serving
// thread, where its client may leave: then its work is dropped at once, with all that it holds.
//
// Work reads what clients have sent. An exception in it, which is a fault of ours, ends that
// exchange with status 500 and a line in the log, and not the server with all its streams.
//
// Thread safety: the serving thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/work_thread.h"
#include "http/exchange.h"
#include "server/replies.h"

namespace wideep::server {

class ExchangeWork {
 public:
  // What is left to do on the serving thread.
  using Rest = std::function<void(const std::shared_ptr<Exchange>& exchange)>;
  using Work = std::function<Rest()>;  // on any thread

  // replies: outlives it.
  explicit ExchangeWork(Replies& replies) : replies_(replies) {}

  // post: runs a function on the serving thread; callable from any thread. Without it all work is
  // done on the serving thread.
  void connect(std::function<void(std::function<void()>)> post) { post_ = std::move(post); }
  bool is_connected() const { return post_ != nullptr; }
  // Work that is short, or for which there is no other thread: done before this returns.
  void do_at_once(const std::shared_ptr<Exchange>& exchange, const Work& work) {
    rest_of(work)(exchange);
  }
  // REQUIRES: is_connected().
  void add(const std::shared_ptr<Exchange>& exchange, Work work);
  // Exchanges whose work has not ended; without those whose clients have left.
  size_t size() const { return waiting_.size(); }
  // Waits for what the thread does, and drops what waits for it, while `post` still works.
  void join() { thread_.join(); }

 private:
  Rest rest_of(const Work& work) const;  // any thread
  void finish(uint64_t id, const Rest& rest);

  Replies& replies_;
  std::function<void(std::function<void()>)> post_;
  std::map<uint64_t, std::shared_ptr<Exchange>> waiting_;
  uint64_t next_ = 0;
  base::WorkThread thread_;  // last: it uses the members above
};

}  // namespace wideep::server
