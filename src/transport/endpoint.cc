// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/try.h"
#include "transport/bridge.h"
#include "transport/flag.h"

namespace wideep::transport {
namespace {

// How often a sleeping wait looks whether the group has failed.
constexpr std::chrono::milliseconds kLookInterval{20};
// What one look may take of the deadline: time in which the whole group was stopped (Ctrl-Z, a
// suspended machine) is not time in which the peer was late.
constexpr std::chrono::milliseconds kMostPerLook{200};
// A wait looks so many times, a pause of some 20 ns between them, before it reads any clock; but
// not for a rank that was last seen on this very core. Then, where ranks outnumber cores, it yields
// its core between looks. With a core of its own it goes on looking for a while: a yield would hand
// the core to a background thread for a slice, however low its priority.
// Waking a sleeper takes 20–40 µs and costs its waker 6–8: a wait that may end sooner is not worth
// a sleep.
constexpr int kPausesBeforeClock = 100;
constexpr int kPausesBetweenClocks = 50;
constexpr int64_t kSpinNs = 20'000;
constexpr int kYieldsBeforeClock = 3;  // where ranks outnumber cores
constexpr int kYields = 100;
// Who yields to a thread that computes gets its core back when that has had its slice; who sleeps,
// when it is woken. So once a yield has taken this long, the next waits sleep at once.
constexpr int64_t kLongYieldNs = 1'000'000;
constexpr int kWaitsWithoutYield = 16;
// Where ranks are on other nodes, nobody wakes a sleeper when something comes of them.
constexpr int kLooksBetweenRelays = 50;
constexpr std::chrono::nanoseconds kRelayInterval{50'000};

bool raised_on(const Flag& flag, int processor) {
  return flag.processor.load(std::memory_order_relaxed) == processor;
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
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(static_cast<size_t>(memory_->num_ranks())),
      timeout_(timeout) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  crowded_ = num_ranks() > static_cast<int>(std::thread::hardware_concurrency());
}

Endpoint::Endpoint(Endpoint& world, Group kind, std::vector<int> ranks)
    : world_(world.world_ != nullptr ? world.world_ : &world),
      kind_(kind),
      memory_(world.memory_),
      ranks_(std::move(ranks)),
      crowded_(world.crowded_) {
  WIDEEP_CHECK(kind != Group::kWorld && kind != world.kind_);
  const auto self = std::find(ranks_.begin(), ranks_.end(), world_->rank_);
  WIDEEP_CHECK(self != ranks_.end());
  rank_ = static_cast<int>(self - ranks_.begin());
}

void Endpoint::raise(Channel channel, int peer, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  if (Bridge* across = bridge(); across != nullptr && !across->is_near(world_rank(peer))) {
    across->raise({kind_, channel, value}, std::span(&ranks_[static_cast<size_t>(peer)], 1));
    return;
  }
  raise_flag(flag_of(channel, rank_), value);
}

void Endpoint::raise_all(Channel channel, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (!may_raise()) return;
  raise_flag(flag_of(channel, rank_), value);
  if (Bridge* across = bridge()) across->raise({kind_, channel, value}, ranks_);
}

void Endpoint::raise_near(Channel channel, uint32_t value) {
  raised_[static_cast<size_t>(channel)] = value;
  if (may_raise()) raise_flag(flag_of(channel, rank_), value);
}

void Endpoint::raise_far(Channel channel, uint32_t value) {
  Bridge* across = bridge();
  if (across != nullptr && may_raise()) across->raise({kind_, channel, value}, ranks_);
}

void Endpoint::set_bridge(Bridge* bridge) {
  WIDEEP_CHECK(world_ == nullptr);
  bridge_ = bridge;
}

bool Endpoint::is_near(int rank) const {
  const Bridge* across = bridge();
  return across == nullptr || across->is_near(world_rank(rank));
}

int Endpoint::ranks_on_node() const {
  int count = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) count += is_near(rank) ? 1 : 0;
  return count;
}

int Endpoint::place_on_node() const {
  int count = 0;
  for (int rank = 0; rank < rank_; ++rank) count += is_near(rank) ? 1 : 0;
  return count;
}

void Endpoint::carry(int peer, std::span<const std::byte> written) {
  if (is_near(peer)) return;
  bridge()->write(static_cast<size_t>(written.data() - segment(peer)), written,
                  std::span(&ranks_[static_cast<size_t>(peer)], 1));
}

void Endpoint::share(int owner, std::span<const Written> written) {
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
  if (Bridge* across = bridge()) across->progress();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (!is_at(flag_of(channel, peer), value)) return false;
  }
  return true;
}

bool Endpoint::near_reached(Channel channel, uint32_t value) const {
  if (Bridge* across = bridge()) across->progress();
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (is_near(peer) && !is_at(flag_of(channel, peer), value)) return false;
  }
  return true;
}

Status Endpoint::wait(Channel channel, int peer, uint32_t value, const Awaited& awaited) {
  Flag& flag = flag_of(channel, peer);
  if (bridge() != nullptr) return wait_long(flag, peer, value, awaited);
  if (is_at(flag, value)) return {};
  if (!raised_on(flag, processor()) && spin_until(flag, value, kPausesBeforeClock)) return {};
  if (crowded_ && yield_until(flag, value, kYieldsBeforeClock)) return {};
  return wait_long(flag, peer, value, awaited);
}

Status Endpoint::wait_long(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  int64_t& waited_cpu_ns = world_ != nullptr ? world_->waited_cpu_ns_ : waited_cpu_ns_;
  const bool spins = bridge() == nullptr && !crowded_;
  if (spins) {
    // To ask for the thread's processor time takes as long as many such waits.
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
  if (crowded_ && waits_without_yield_ > 0) --waits_without_yield_;
  waited_cpu_ns += base::thread_cpu_ns() - start_cpu_ns;
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

// With ranks on other nodes: handles their messages meanwhile, for itself and as their proxy.
bool Endpoint::relay_until(const Flag& flag, uint32_t value, int looks) {
  for (int idle = 0; !is_at(flag, value);) {
    idle = bridge()->progress() ? 0 : idle + 1;
    if (idle == looks) return is_at(flag, value);
    if (idle > 0) ::sched_yield();
  }
  return true;
}

Status Endpoint::sleep_until(Flag& flag, int peer, uint32_t value, const Awaited& awaited) {
  using Clock = std::chrono::steady_clock;
  Clock::duration left = timeout();
  Clock::time_point looked = Clock::now();
  Status status;
  Bridge* across = bridge();
  const std::chrono::nanoseconds look_interval = across != nullptr ? kRelayInterval : kLookInterval;
  flag.sleepers.fetch_add(1);
  for (;;) {
    if (across != nullptr)
      while (across->progress()) continue;
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
    sleep_on(flag, seen, std::min<std::chrono::nanoseconds>(left, look_interval));
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
    name += fmt::format(" (node {})", across->nodes().node_of(world_rank(rank)));
  return name;
}

// −1 where it does not matter: no ranks share a core, or some are on other nodes.
int Endpoint::processor() const { return crowded_ && bridge() == nullptr ? ::sched_getcpu() : -1; }

// Who has raised a flag on this core cannot raise it again before this rank yields. One of another
// core may be about to, and ranks of this core would wait for it too: so those here are awaited
// first, by yielding, then the others, by looking for a while.
Status Endpoint::wait_all(Channel channel, uint32_t value, const Awaited& awaited) {
  const int here = processor();
  for (int peer = 0; peer < num_ranks() && here >= 0; ++peer) {
    const Flag& flag = flag_of(channel, peer);
    if (is_at(flag, value) || !raised_on(flag, here)) continue;
    WIDEEP_TRY(wait(channel, peer, value, awaited));
  }
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (is_at(flag_of(channel, peer), value)) continue;
    WIDEEP_TRY(wait(channel, peer, value, awaited));
  }
  return {};
}

Status Endpoint::wait_each(Channel channel, uint32_t value, const Awaited& awaited,
                           const std::function<void(std::span<const int> peers)>& arrived) {
  missing_.clear();
  for (int peer = rank_; peer < num_ranks(); ++peer) missing_.push_back(peer);
  for (int peer = 0; peer < rank_; ++peer) missing_.push_back(peer);
  std::span<int> missing = missing_;
  for (;;) {
    const auto late = std::partition(missing.begin(), missing.end(), [&](int peer) {
      return is_at(flag_of(channel, peer), value);
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
  // Two sets per rank, used in turn: a rank reaches agreement n + 2 only after all have raised
  // their flags for n + 1, hence have read the words of n.
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

Status Endpoint::meet(const Awaited& awaited) { return agree({}, awaited, &met_); }

}  // namespace wideep::transport
