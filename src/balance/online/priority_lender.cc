// SPDX-License-Identifier: Apache-2.0
#include "online/priority_lender.h"

#include <unistd.h>

#include <algorithm>

#include "base/cpu_time.h"
#include "base/named_thread.h"
#include "online/background_thread.h"

namespace wideep::online {
namespace {

// A post wakes it at once; a stop may come just before it sleeps.
constexpr std::chrono::milliseconds kLongestSleep{200};
constexpr std::chrono::milliseconds kLook{1};  // while a loan runs

}  // namespace

PriorityLender::PriorityLender(const UpdateBoard& board, UpdaterCounters& counters,
                               std::chrono::milliseconds after, const std::vector<int>& processors)
    : board_(board),
      counters_(counters),
      after_(after),
      thread_([this, processors] { run(processors); }) {}

void PriorityLender::stop() {
  stop_ = true;
  board_.wake();
  if (thread_.joinable()) thread_.join();
}

void PriorityLender::begin() { borrower_ = ::gettid(); }

void PriorityLender::run(const std::vector<int>& processors) {
  base::name_and_bind_thread("wideep-lend", processors);
  while (!stop_) {
    const uint32_t posts = board_.num_posts();
    if (is_done(posts)) {
      board_.wait_for_post(posts, kLongestSleep);
    } else if (!is_done_within(posts, after_)) {
      lend_until_done(posts);
    }
    counters_.lender_cpu_ns = base::thread_cpu_ns();
  }
}

// Posts are counted modulo 2^32.
bool PriorityLender::is_done(uint32_t posts) const {
  return static_cast<int32_t>(done_.load(std::memory_order_acquire) - posts) >= 0;
}

bool PriorityLender::is_done_within(uint32_t posts, std::chrono::milliseconds time) const {
  const auto look = std::clamp(time / 4, kLook, std::chrono::milliseconds(5));
  const int64_t end_ns = base::wall_ns() + std::chrono::nanoseconds(time).count();
  while (!stop_ && !is_done(posts)) {
    if (base::wall_ns() >= end_ns) return false;
    std::this_thread::sleep_for(look);
  }
  return true;
}

// This thread alone changes the priority, so a loan never outlives its work.
void PriorityLender::lend_until_done(uint32_t posts) {
  const pid_t borrower = borrower_;
  if (borrower == 0) return;
  if (!lend_priority(borrower)) {
    ++counters_.refused_loans;
    while (!stop_ && !is_done(posts)) std::this_thread::sleep_for(after_);
    return;
  }
  lent_ = true;
  while (!stop_ && !is_done(posts)) std::this_thread::sleep_for(kLook);
  lent_ = false;
  take_priority_back(borrower);
}

}  // namespace wideep::online
