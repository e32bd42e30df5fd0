// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "base/cpu_time.h"
#include "base/try.h"

namespace wideep::transport {
namespace {

// How often a sleeping wait looks whether the group has failed.
constexpr std::chrono::milliseconds kLookInterval{20};
// What one look may take of the deadline: time in which the whole group was stopped (Ctrl-Z, a
// suspended machine) is not time in which the peer was late.
constexpr std::chrono::milliseconds kMostPerLook{200};
// A wait looks so many times, a pause of some 20 ns between them, before it reads any clock. Then,
// where ranks outnumber cores, it yields its core between looks, for whom it awaits may be on the
// same. With a core of its own it goes on looking for a while: a yield would hand the core to a
// background thread for a slice, however low its priority.
// Waking a sleeper takes 20–40 µs and costs its waker 6–8: a wait that may end sooner is not worth
// a sleep.
constexpr int kPausesBeforeClock = 100;
constexpr int kPausesBetweenClocks = 50;
constexpr int64_t kSpinNs = 20'000;
constexpr int kYieldsBeforeClock = 3;  // where ranks outnumber cores, instead of pauses
constexpr int kYields = 100;
// Who yields to a thread that computes gets its core back when that has had its slice; who sleeps,
// when it is woken. So once a yield has taken this long, the next waits sleep at once.
constexpr int64_t kLongYieldNs = 1'000'000;
constexpr int kWaitsWithoutYield = 16;

// Flags may run ahead of their reader and wrap around.
bool reached(uint32_t flag, uint32_t value) { return static_cast<int32_t>(flag - value) >= 0; }

bool is_at(const Flag& flag, uint32_t value) {
  return reached(flag.value.load(std::memory_order_acquire), value);
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most) {
  const timespec timeout{.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE: the word is shared between processes. Whatever ends it, the caller looks
  // again.
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool spin_until(const Flag& flag, uint32_t value, int pauses) {
  for (; !is_at(flag, value); --pauses) {
    if (pauses == 0) return false;
    _mm_pause();
  }
  return true;
}

bool spin_for(const Flag& flag, uint32_t value, int64_t at_most_ns) {
  const int64_t end_ns = base::wall_ns() + at_most_ns;
  do {
    if (spin_until(flag, value, kPausesBetweenClocks)) return true;
  } while (base::wall_ns() < end_ns);
  return false;
}

}  // namespace

Endpoint::Endpoint(std::shared_ptr<SharedMemory> memory, int rank,
                   std::chrono::milliseconds timeout)
    : memory_(std::move(memory)), rank_(rank), timeout_(timeout) {
  crowded_ = num_ranks() > static_cast<int>(std::thread::hardware_concurrency());
}

void Endpoint::store_flag(Channel channel, int peer, uint32_t value) {
  memory_->flag(channel, rank_, peer).value.store(value, std::memory_order_release);
}

// After a full barrier behind the stores: either the reader sees the value, or we see it asleep.
void Endpoint::wake(Channel channel, int peer) {
  Flag& flag = memory_->flag(channel, rank_, peer);
  if (flag.sleeper.load() != 0) futex_wake(flag.value);
}

void Endpoint::raise(Channel channel, int peer, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  store_flag(channel, peer, value);
  _mm_mfence();
  wake(channel, peer);
}

// One barrier for all: the cache lines of the flags travel side by side.
void Endpoint::raise_all(Channel channel, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  for (int peer = rank_ + 1; peer < num_ranks(); ++peer) store_flag(channel, peer, value);
  for (int peer = 0; peer <= rank_; ++peer) store_flag(channel, peer, value);
  _mm_mfence();
  for (int peer = rank_ + 1; peer < num_ranks(); ++peer) wake(channel, peer);
  for (int peer = 0; peer < rank_; ++peer) wake(channel, peer);
}

bool Endpoint::all_reached(Channel channel, uint32_t value) const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (!is_at(memory_->flag(channel, peer, rank_), value)) return false;
  }
  return true;
}

Status Endpoint::wait(Channel channel, int peer, uint32_t value, const Awaited& awaited) {
  Flag& flag = memory_->flag(channel, peer, rank_);
  if (spin_until(flag, value, crowded_ ? 0 : kPausesBeforeClock)) return {};
  if (crowded_ && yield_until(flag, value, kYieldsBeforeClock)) return {};
  return wait_long(flag, peer, value, awaited);
}

Status Endpoint::wait_long(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  const int64_t start_cpu_ns = base::thread_cpu_ns();
  Status status;
  const bool seen = crowded_ ? yield_until(flag, value, kYields) : spin_for(flag, value, kSpinNs);
  if (!seen) status = sleep_until(flag, peer, value, awaited);
  if (waits_without_yield_ > 0) --waits_without_yield_;
  waited_cpu_ns_ += base::thread_cpu_ns() - start_cpu_ns;
  return status;
}

// False: not there in time.
bool Endpoint::yield_until(const Flag& flag, uint32_t value, int yields) {
  for (int i = 0; i < yields && waits_without_yield_ == 0; ++i) {
    const int64_t start_ns = base::wall_ns();
    ::sched_yield();
    if (base::wall_ns() - start_ns > kLongYieldNs) waits_without_yield_ = kWaitsWithoutYield;
    if (is_at(flag, value)) return true;
  }
  return false;
}

Status Endpoint::sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  using Clock = std::chrono::steady_clock;
  Clock::duration left = timeout_;
  Clock::time_point looked = Clock::now();
  Status status;
  flag.sleeper.store(1);
  for (;;) {
    const uint32_t seen = flag.value.load();
    if (reached(seen, value)) break;
    if (status = memory_->failure(); !status.ok()) break;
    const Clock::time_point now = Clock::now();
    left -= std::min<Clock::duration>(now - looked, kMostPerLook);
    looked = now;
    if (left <= Clock::duration::zero()) {
      status = timed_out(peer, awaited);
      memory_->fail(status);
      break;
    }
    futex_wait(flag.value, seen, std::min<std::chrono::nanoseconds>(left, kLookInterval));
  }
  flag.sleeper.store(0);
  return status;
}

Status Endpoint::timed_out(int peer, const Awaited& awaited) const {
  std::string where;
  if (awaited.layer >= 0) where += fmt::format(", layer {}", awaited.layer);
  if (awaited.iteration >= 0) where += fmt::format(", iteration {}", awaited.iteration);
  return deadline_exceeded(fmt::format("rank {} waited {} ms for {} from rank {}{}", rank_,
                                       timeout_.count(), awaited.what, peer, where));
}

Status Endpoint::wait_all(Channel channel, uint32_t value, const Awaited& awaited) {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    WIDEEP_TRY(wait(channel, peer, value, awaited));
  }
  return {};
}

Status Endpoint::wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                           const std::function<void(int peer)>& arrived) {
  missing_.clear();
  for (int step = 0; step < num_ranks(); ++step) missing_.push_back((rank_ + step) % num_ranks());
  for (;;) {
    std::erase_if(missing_, [&](int peer) {
      if (!is_at(memory_->flag(channel, peer, rank_), value)) return false;
      arrived(peer);
      return true;
    });
    if (missing_.empty()) return {};
    WIDEEP_TRY(wait(channel, missing_.front(), value, awaited));
  }
}

Status Endpoint::agree(const AgreedWords& mine, const Awaited& awaited,
                       std::vector<AgreedWords>* words) {
  // Two sets per rank, used in turn: a rank reaches agreement n + 2 only after all have raised
  // their flags for n + 1, hence have read the words of n.
  const uint32_t agreement = raised(Channel::kAgree) + 1;
  memory_->agreed_words(rank_, agreement) = mine;
  raise_all(Channel::kAgree, agreement);
  WIDEEP_TRY(wait_all(Channel::kAgree, agreement, awaited));
  words->resize(num_ranks());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    (*words)[rank] = memory_->agreed_words(rank, agreement);
  }
  return {};
}

Status Endpoint::meet(const Awaited& awaited) { return agree({}, awaited, &met_); }

}  // namespace wideep::transport
