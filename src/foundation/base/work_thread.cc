// SPDX-License-Identifier: Apache-2.0
#include "base/work_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace wideep::base {
namespace {

// Weighs about a tenth of a thread of niceness 0.
constexpr int kNiceness = 10;

}  // namespace

void WorkThread::add(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  if (ends_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  calls_.push_back(std::move(call));
  changed_.notify_one();
}

void WorkThread::join() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    calls_.clear();
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkThread::run() {
  // On Linux the niceness is a thread's own. It can always be raised.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()),
                ::getpriority(PRIO_PROCESS, 0) + kNiceness);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !calls_.empty(); });
    if (ends_) return;
    const auto call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    call();
    lock.lock();
  }
}

}  // namespace wideep::base
