// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
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

// Flags may run ahead of their reader and wrap around.
bool reached(uint32_t flag, uint32_t value) { return static_cast<int32_t>(flag - value) >= 0; }

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

}  // namespace

Endpoint::Endpoint(std::shared_ptr<SharedMemory> memory, int rank,
                   std::chrono::milliseconds timeout)
    : memory_(std::move(memory)), rank_(rank), timeout_(timeout) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (num_ranks() > cores) spin_ = std::chrono::nanoseconds(0);
}

void Endpoint::raise(Channel channel, int peer, uint32_t value) {
  Flag& flag = memory_->flag(channel, rank_, peer);
  // Sequentially consistent on both words: either the reader sees the value, or we see it asleep.
  flag.value.store(value);
  if (flag.sleeper.load() != 0) futex_wake(flag.value);
}

void Endpoint::raise_all(Channel channel, uint32_t value) {
  for (int step = 0; step < num_ranks(); ++step) {
    raise(channel, (rank_ + step) % num_ranks(), value);  // not all ranks at the same peer first
  }
}

Status Endpoint::wait(Channel channel, int peer, uint32_t value, const Awaited& awaited) {
  Flag& flag = memory_->flag(channel, peer, rank_);
  if (reached(flag.value.load(std::memory_order_acquire), value)) return {};
  const int64_t start_ns = base::wall_ns();
  const int64_t start_cpu_ns = base::thread_cpu_ns();
  Status status;
  bool arrived = false;
  while (!arrived && base::wall_ns() - start_ns < spin_.count()) {
    for (int i = 0; i < 64 && !arrived; ++i) {
      _mm_pause();
      arrived = reached(flag.value.load(std::memory_order_acquire), value);
    }
  }
  if (!arrived) status = sleep_until(flag, peer, value, awaited);
  waited_cpu_ns_ += base::thread_cpu_ns() - start_cpu_ns;
  return status;
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

Status Endpoint::agree(const AgreedWords& mine, const Awaited& awaited,
                       std::vector<AgreedWords>* words) {
  // Two sets per rank, used in turn: a rank reaches agreement n + 2 only after all have raised
  // their flags for n + 1, hence have read the words of n.
  ++agreements_;
  memory_->agreed_words(rank_, agreements_) = mine;
  raise_all(Channel::kAgree, agreements_);
  WIDEEP_TRY(wait_all(Channel::kAgree, agreements_, awaited));
  words->resize(num_ranks());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    (*words)[rank] = memory_->agreed_words(rank, agreements_);
  }
  return {};
}

Status Endpoint::meet(const Awaited& awaited) { return agree({}, awaited, &met_); }

}  // namespace wideep::transport
