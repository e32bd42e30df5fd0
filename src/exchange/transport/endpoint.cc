// SPDX-License-Identifier: Apache-2.0
//
// A wait has up to three phases, because each way to wait is best for another duration:
//
//   spin    no system call; fastest to notice a flag, but keeps the core
//   yield   ranks outnumber cores: the awaited rank may be ready to run on this core
//   sleep   futex; frees the core, but waking costs tens of microseconds
//
// With a bridge, "relay" replaces spin and yield: a waiting rank handles messages of other nodes,
// for itself and as their proxy. Proxies have no thread of their own: if they did not do so while
// they wait, every rank would wait until its deadline.
#include "transport/endpoint.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/spin_pause.h"
#include "base/try.h"
#include "transport/bridge.h"
#include "transport/flag.h"

namespace wideep::transport {
namespace {

// How often a sleeping wait checks whether the group has failed.
constexpr std::chrono::milliseconds kFailureCheckInterval{20};
// The most that one check may count towards the deadline. If the whole group was stopped (Ctrl-Z, a
// suspended machine), the peer was not late.
constexpr std::chrono::milliseconds kMaxPerCheck{200};
// A wait first polls the flag kPausesBeforeClock times, some 20 ns apart, without reading a clock.
// It skips this if the flag was last raised on this core, since then the awaited rank cannot run.
// Where ranks outnumber cores, the wait then yields between polls. With a core of its own it spins
// for kSpinNs instead: a yield would give a whole time slice to a background thread, however low
// its priority. It does not sleep sooner, because waking a sleeper takes 20–40 µs and costs the
// waker 6–8 µs.
constexpr int kPausesBeforeClock = 100;
constexpr int kPausesBetweenClocks = 50;
constexpr int64_t kSpinNs = 20'000;
constexpr int kYieldsBeforeClock = 3;  // where ranks outnumber cores
constexpr int kYields = 100;
// A rank that yields to a computing thread gets its core back only after that thread's time slice.
// A rank that sleeps gets it back when it is woken. So after a yield of kLongYieldNs the next
// kWaitsWithoutYield waits sleep at once.
constexpr int64_t kLongYieldNs = 1'000'000;
constexpr int kWaitsWithoutYield = 16;
// A message from another node does not wake a sleeping rank, so with a bridge sleeps are short.
constexpr int kLooksBetweenRelays = 50;
constexpr std::chrono::nanoseconds kRelayInterval{50'000};
// A rank that is alone on its node sleeps on its connections instead, which wakes it. What other
// threads have queued for sending waits at most this long.
constexpr std::chrono::nanoseconds kMessageInterval{500'000};

// Relaxed: only a hint which way to wait. A stale value costs time, not correctness.
bool raised_on(const Flag& flag, int processor) {
  return flag.processor.load(std::memory_order_relaxed) == processor;
}

bool spin_until(const Flag& flag, uint32_t value, int pauses) {
  for (; !has_reached(flag, value); --pauses) {
    if (pauses == 0) return false;
    base::spin_pause();
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
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(static_cast<size_t>(memory_->num_ranks())),
      timeout_(timeout) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  oversubscribed_ = num_ranks() > static_cast<int>(std::thread::hardware_concurrency());
}

Endpoint::Endpoint(Endpoint& world, Group kind, std::vector<int> ranks)
    : world_(world.world_ != nullptr ? world.world_ : &world),
      kind_(kind),
      memory_(world.memory_),
      ranks_(std::move(ranks)),
      oversubscribed_(world.oversubscribed_) {
  WIDEEP_CHECK(kind != Group::kWorld && kind != world.kind_);
  const auto self = std::find(ranks_.begin(), ranks_.end(), world_->rank_);
  WIDEEP_CHECK(self != ranks_.end());
  rank_ = static_cast<int>(self - ranks_.begin());
}

void Endpoint::raise(Channel channel, int peer, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  if (Bridge* across = bridge(); across != nullptr && !across->is_on_this_node(world_rank(peer))) {
    across->raise({kind_, channel, value}, std::span(&ranks_[static_cast<size_t>(peer)], 1));
    return;
  }
  raise_flag(flag_of(channel, rank_), value);
}

// For other nodes, the words that accompany the flag travel in the same message as the flag
// (Bridge::raise), so a reader never sees the flag without them.
void Endpoint::raise_all(Channel channel, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  raise_flag(flag_of(channel, rank_), value);
  if (Bridge* across = bridge()) across->raise({kind_, channel, value}, ranks_);
}

void Endpoint::raise_on_this_node(Channel channel, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (may_raise()) raise_flag(flag_of(channel, rank_), value);
}

void Endpoint::raise_on_other_nodes(Channel channel, uint32_t value) {
  Bridge* across = bridge();
  if (across != nullptr && may_raise()) across->raise({kind_, channel, value}, ranks_);
}

void Endpoint::set_bridge(Bridge* bridge) {
  WIDEEP_CHECK(world_ == nullptr);
  bridge_ = bridge;
}

bool Endpoint::is_on_this_node(int rank) const {
  const Bridge* across = bridge();
  return across == nullptr || across->is_on_this_node(world_rank(rank));
}

int Endpoint::ranks_on_node() const {
  int count = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) count += is_on_this_node(rank) ? 1 : 0;
  return count;
}

int Endpoint::index_on_node() const {
  int count = 0;
  for (int rank = 0; rank < rank_; ++rank) count += is_on_this_node(rank) ? 1 : 0;
  return count;
}

void Endpoint::forward_to(int peer, std::span<const std::byte> written) {
  if (is_on_this_node(peer)) return;
  bridge()->write(static_cast<size_t>(written.data() - segment(peer)), written,
                  std::span(&ranks_[static_cast<size_t>(peer)], 1));
}

void Endpoint::forward_to_all(int owner, std::span<const Written> written) {
  Bridge* across = bridge();
  if (across == nullptr || ranks_on_node() == num_ranks()) return;
  std::vector<Bridge::Block> blocks;
  for (const Written& each : written) {
    if (each.width == 0 || each.rows == 0) continue;
    const auto* first = static_cast<const std::byte*>(each.first);
    blocks.push_back(
        {static_cast<size_t>(first - segment(owner)), each.width, each.stride, each.rows});
  }
  if (!blocks.empty()) across->copy(world_rank(owner), blocks, ranks_);
}

bool Endpoint::all_reached(Channel channel, uint32_t value) const {
  // A caller that polls instead of waiting must drive the bridge too, or remote flags never come.
  if (Bridge* across = bridge()) across->progress();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (!has_reached(flag_of(channel, peer), value)) return false;
  }
  return true;
}

bool Endpoint::reached_on_this_node(Channel channel, uint32_t value) const {
  if (Bridge* across = bridge()) across->progress();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (is_on_this_node(peer) && !has_reached(flag_of(channel, peer), value)) return false;
  }
  return true;
}

Status Endpoint::wait(Channel channel, int peer, uint32_t value, const Awaited& awaited) {
  Flag& flag = flag_of(channel, peer);
  // With a bridge the first phase would only delay the messages that the wait has to handle.
  if (bridge() != nullptr) return wait_long(flag, peer, value, awaited);
  if (has_reached(flag, value)) return {};
  if (!raised_on(flag, processor()) && spin_until(flag, value, kPausesBeforeClock)) return {};
  if (oversubscribed_ && yield_until(flag, value, kYieldsBeforeClock)) return {};
  return wait_long(flag, peer, value, awaited);
}

Status Endpoint::wait_long(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  int64_t& waited_cpu_ns = world_ != nullptr ? world_->waited_cpu_ns_ : waited_cpu_ns_;
  const bool spins = bridge() == nullptr && !oversubscribed_;
  if (spins) {
    // Wall time stands for processor time: a call for the latter takes longer than many such waits.
    const int64_t start_ns = base::wall_ns();
    const bool seen = spin_for(flag, value, kSpinNs);
    waited_cpu_ns += std::min(base::wall_ns() - start_ns, kSpinNs);
    if (seen) return {};
  }
  const int64_t start_cpu_ns = base::thread_cpu_ns();
  const bool seen = !spins && (bridge() != nullptr ? relay_until(flag, value, kLooksBetweenRelays)
                                                   : yield_until(flag, value, kYields));
  Status status;
  if (!seen) status = sleep_until(flag, peer, value, awaited);
  if (oversubscribed_ && waits_without_yield_ > 0) --waits_without_yield_;
  waited_cpu_ns += base::thread_cpu_ns() - start_cpu_ns;
  return status;
}

// False: the flag has not reached the value after `yields` yields, or yielding is suspended.
bool Endpoint::yield_until(const Flag& flag, uint32_t value, int yields) {
  for (int i = 0; i < yields && waits_without_yield_ == 0; ++i) {
    const int64_t start_ns = base::wall_ns();
    ::sched_yield();
    if (base::wall_ns() - start_ns > kLongYieldNs) waits_without_yield_ = kWaitsWithoutYield;
    if (has_reached(flag, value)) return true;
  }
  return false;
}

// Handles messages of other nodes until the flag has reached the value. False: `looks` polls in a
// row found neither a message nor the flag.
bool Endpoint::relay_until(const Flag& flag, uint32_t value, int looks) {
  for (int idle = 0; !has_reached(flag, value);) {
    idle = bridge()->progress() ? 0 : idle + 1;
    if (idle == looks) return has_reached(flag, value);
    if (idle > 0) ::sched_yield();
  }
  return true;
}

Status Endpoint::sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  using Clock = std::chrono::steady_clock;
  Clock::duration left = timeout();
  Clock::time_point checked = Clock::now();
  Status status;
  Bridge* across = bridge();
  const std::chrono::nanoseconds interval =
      across != nullptr ? kRelayInterval : kFailureCheckInterval;
  // Before the load of the flag, and sequentially consistent: pairs with raise_flag (flag.cc).
  flag.sleepers.fetch_add(1);
  for (;;) {
    if (across != nullptr)
      while (across->progress()) continue;
    const uint32_t seen = flag.value.load();
    if (reached(seen, value)) break;
    if (status = memory_->failure(); !status.ok()) break;
    const Clock::time_point now = Clock::now();
    left -= std::min<Clock::duration>(now - checked, kMaxPerCheck);
    checked = now;
    if (left <= Clock::duration::zero()) {
      status = timed_out(peer, awaited);
      memory_->fail(status);  // so that the other ranks report this error, not deadlines of theirs
      break;
    }
    if (across != nullptr && across->is_alone()) {
      across->wait(std::min<std::chrono::nanoseconds>(left, kMessageInterval));
    } else {
      sleep_on(flag, seen, std::min<std::chrono::nanoseconds>(left, interval));
    }
  }
  flag.sleepers.fetch_sub(1);
  return status;
}

Status Endpoint::timed_out(int peer, const Awaited& awaited) const {
  std::string where;
  if (awaited.layer >= 0) where += fmt::format(", layer {}", awaited.layer);
  if (awaited.iteration >= 0) where += fmt::format(", iteration {}", awaited.iteration);
  return deadline_exceeded(fmt::format("{} waited {} ms for {} from {}{}", name_of(rank_),
                                       timeout().count(), awaited.what, name_of(peer), where));
}

std::string Endpoint::name_of(int rank) const {
  const Bridge* across = bridge();
  std::string name = fmt::format("rank {}", world_rank(rank));
  if (across != nullptr)
    name +=
        fmt::format(" (node {})", across->nodes().name(across->nodes().node_of(world_rank(rank))));
  return name;
}

// The processor this rank runs on; −1 where waits do not depend on it: each rank has a core, or a
// bridge has to be driven.
int Endpoint::processor() const {
  return oversubscribed_ && bridge() == nullptr ? ::sched_getcpu() : -1;
}

// Awaits ranks of this core first. They cannot run before this rank yields, and while they run,
// ranks of other cores raise their flags too. In the other order this rank would spin for another
// core's rank while ranks that need this core stand still.
Status Endpoint::wait_all(Channel channel, uint32_t value, const Awaited& awaited) {
  const int here = processor();
  for (int peer = 0; peer < num_ranks() && here >= 0; ++peer) {
    const Flag& flag = flag_of(channel, peer);
    if (has_reached(flag, value) || !raised_on(flag, here)) continue;
    WIDEEP_TRY(wait(channel, peer, value, awaited));
  }
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (has_reached(flag_of(channel, peer), value)) continue;
    WIDEEP_TRY(wait(channel, peer, value, awaited));
  }
  return {};
}

Status Endpoint::wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                           const std::function<void(std::span<const int> peers)>& arrived) {
  // In ring order from this rank, whose own flag is raised already: so ranks start with different
  // peers.
  missing_.clear();
  for (int peer = rank_; peer < num_ranks(); ++peer) missing_.push_back(peer);
  for (int peer = 0; peer < rank_; ++peer) missing_.push_back(peer);
  std::span<int> missing = missing_;
  for (;;) {
    const auto late = std::partition(missing.begin(), missing.end(), [&](int peer) {
      return has_reached(flag_of(channel, peer), value);
    });
    const auto num_arrived = static_cast<size_t>(late - missing.begin());
    if (num_arrived > 0) arrived(missing.first(num_arrived));
    missing = missing.subspan(num_arrived);
    if (missing.empty()) return {};
    const int here = processor();
    const auto neighbour = std::find_if(missing.begin(), missing.end(), [&](int peer) {
      return raised_on(flag_of(channel, peer), here);
    });
    WIDEEP_TRY(
        wait(channel, neighbour == missing.end() ? missing.front() : *neighbour, value, awaited));
  }
}

Status Endpoint::agree(const AgreedWords& mine, const Awaited& awaited,
                       std::vector<AgreedWords>* words) {
  // Two sets of words per rank, used in turn. A rank begins all-gather n + 2 only after all ranks
  // have raised their flags for n + 1, hence have read the words of n.
  const uint32_t agreement = raised(Channel::kAgree) + 1;
  memory_->agreed_words(kind_, world_rank(), agreement) = mine;
  raise_all(Channel::kAgree, agreement);
  WIDEEP_TRY(wait_all(Channel::kAgree, agreement, awaited));
  words->resize(num_ranks());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    (*words)[rank] = memory_->agreed_words(kind_, world_rank(rank), agreement);
  }
  return {};
}

Status Endpoint::barrier(const Awaited& awaited) { return agree({}, awaited, &barrier_words_); }

}  // namespace wideep::transport
