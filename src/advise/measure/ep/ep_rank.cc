// SPDX-License-Identifier: Apache-2.0
//
// Barriers enclose a block: all ranks begin it together, and rank 0 reads the board when all have
// written to it. Rank 0 alone chooses the number of rounds, and the others read it behind a
// barrier: ranks that disagreed would wait for ever. A test's rounds, its plain copies and MPI's
// rounds follow each other at once, because only neighbours in time are compared.
#include "measure/ep/ep_rank.h"

#include <sched.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/cpu_time.h"
#include "base/spin_pause.h"
#include "base/try.h"

namespace wideep::measure {
namespace {

constexpr transport::Awaited kBlock{.what = "a block of rounds"};
constexpr int kWarmRounds = 3;
constexpr int kPingPongRounds = 2000;

void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

class EpRank {
 public:
  EpRank(const EpRankSetup& setup, transport::Endpoint& endpoint, const transport::Messenger& pipe)
      : setup_(setup), endpoint_(endpoint), pipe_(pipe) {}

  Status run();

 private:
  bool is_first() const { return endpoint_.rank() == 0; }
  EpRankBlock& mine() { return setup_.board.block(endpoint_.rank()); }
  Status run_test(int index, const EpTest& test);
  Status choose_num_rounds(EpRounds& rounds);
  Status measure_rounds(int test, EpRounds& rounds);
  Status measure_copies(int test, EpRounds& rounds);
  Status measure_ping_pong();
  void play_ping_pong() const;
  Status measure_mpi(int index, const EpTest& test);
  template <typename Round>
  Status time_block(Round round);
  Status report(const EpSample& sample) const { return pipe_.send(sample.bytes()); }

  const EpRankSetup& setup_;
  transport::Endpoint& endpoint_;
  const transport::Messenger& pipe_;
  MpiBaseline mpi_;
};

Status EpRank::run() {
  pin_to(setup_.processors[static_cast<size_t>(endpoint_.rank())]);
  if (is_first() && !setup_.mpi_program.empty()) {
    WIDEEP_TRY(mpi_.start(setup_.mpi_program, {.group = setup_.options.group,
                                               .hidden = setup_.options.hidden,
                                               .sum = setup_.options.sum,
                                               .processors = setup_.processors}));
  }
  const std::vector<EpTest> tests = setup_.options.tests();
  for (int repeat = 0; repeat < setup_.options.repeats; ++repeat) {
    for (size_t i = 0; i < tests.size(); ++i) {
      WIDEEP_TRY(run_test(static_cast<int>(i), tests[i]));
    }
  }
  return {};
}

Status EpRank::run_test(int index, const EpTest& test) {
  EpRounds rounds(round_setup(setup_, test), endpoint_);
  WIDEEP_TRY(rounds.start());
  mine().bytes = rounds.bytes_per_round();
  WIDEEP_TRY(choose_num_rounds(rounds));
  WIDEEP_TRY(measure_rounds(index, rounds));
  if (test.tokens == 0) {
    WIDEEP_TRY(measure_ping_pong());
  } else {
    WIDEEP_TRY(measure_copies(index, rounds));
  }
  return setup_.mpi_program.empty() ? Status() : measure_mpi(index, test);
}

// All ranks must run the same number of rounds, or one would wait forever: rank 0 chooses it from
// its own warm-up rounds, and the barrier publishes it.
Status EpRank::choose_num_rounds(EpRounds& rounds) {
  EpPhases phases;
  const int64_t start = base::wall_ns();
  for (int i = 0; i < kWarmRounds; ++i) WIDEEP_TRY(rounds.round(&phases));
  const int64_t one = std::max<int64_t>(1, (base::wall_ns() - start) / kWarmRounds);
  if (is_first()) {
    const int64_t wanted = std::chrono::nanoseconds(setup_.options.block).count() / one;
    setup_.board.num_rounds() =
        static_cast<int>(std::clamp<int64_t>(wanted, 3, EpRankBlock::kMaxRounds));
  }
  return endpoint_.barrier(kBlock);
}

// Runs round(i) for every round of the block and writes this rank's times to the board. The barrier
// before it lets all ranks begin together; the one after it makes the board complete before rank 0
// reads it.
template <typename Round>
Status EpRank::time_block(Round round) {
  EpRankBlock& block = mine();
  WIDEEP_TRY(endpoint_.barrier(kBlock));
  const int64_t cpu = base::thread_cpu_ns(), waited = endpoint_.waited_cpu_ns();
  block.start_ns = base::wall_ns();
  for (int i = 0; i < setup_.board.num_rounds(); ++i) WIDEEP_TRY(round(i));
  block.end_ns = base::wall_ns();
  block.cpu_ns = base::thread_cpu_ns() - cpu;
  block.wait_ns = endpoint_.waited_cpu_ns() - waited;
  return endpoint_.barrier(kBlock);
}

Status EpRank::measure_rounds(int test, EpRounds& rounds) {
  WIDEEP_TRY(time_block([&](int i) { return rounds.round(&mine().rounds[i]); }));
  if (!is_first()) return {};
  EpBlock block = block_of_group(setup_.board, endpoint_.num_ranks());
  if (!rounds.are_timed()) {
    block.round = block.mean;
    block.prepare = block.dispatch = block.combine = 0.0;
  }
  return report({.test = test, .block = block});
}

Status EpRank::measure_copies(int test, EpRounds& rounds) {
  rounds.copy_round();
  // Ranks that share a core take turns, as they do in rounds, so that here, too, each finds the
  // caches filled by the others.
  const std::set<int> cores(setup_.processors.begin(), setup_.processors.end());
  const bool take_turns = cores.size() < setup_.processors.size();
  WIDEEP_TRY(time_block([&](int) -> Status {
    rounds.copy_round();
    if (take_turns) ::sched_yield();
    return {};
  }));
  if (!is_first()) return {};
  return report({.test = test,
                 .kind = EpSample::kCopy,
                 .block = block_of_group(setup_.board, endpoint_.num_ranks())});
}

Status EpRank::measure_ping_pong() {
  const bool possible = endpoint_.num_ranks() > 1 && setup_.processors[0] != setup_.processors[1];
  if (!possible) return {};
  WIDEEP_TRY(endpoint_.barrier(kBlock));
  const int64_t start = base::wall_ns();
  if (endpoint_.rank() < 2) play_ping_pong();
  const double nanoseconds = static_cast<double>(base::wall_ns() - start);
  WIDEEP_TRY(endpoint_.barrier(kBlock));
  if (!is_first()) return {};
  return report(
      {.kind = EpSample::kPingPong, .block = {.mean = nanoseconds * 1e-3 / kPingPongRounds}});
}

// Rank 0 stores a number, rank 1 answers with the same number. Neither sleeps: both have just left
// a barrier and are on different processors. Each store is a release that pairs with the other
// rank's acquire load, as with the flags of dispatch.
void EpRank::play_ping_pong() const {
  std::atomic<uint32_t>& ping = setup_.board.ping_pong_flag(0);
  std::atomic<uint32_t>& pong = setup_.board.ping_pong_flag(1);
  uint32_t value = (is_first() ? ping : pong).load();
  for (int i = 0; i < kPingPongRounds; ++i) {
    ++value;
    if (is_first()) ping.store(value, std::memory_order_release);
    while ((is_first() ? pong : ping).load(std::memory_order_acquire) != value) base::spin_pause();
    if (!is_first()) pong.store(value, std::memory_order_release);
  }
}

// The kinds of MPI rounds that bring back as many rows as the test does.
std::span<const MpiRows> peers_of(const EpTest& test) {
  static constexpr MpiRows kExact[] = {MpiRows::kPerExpert, MpiRows::kOncePerRank};
  static constexpr MpiRows kReduced[] = {MpiRows::kPerRank};
  if (!test.form.is_bf16()) return {};
  return test.combine == ep::Combine::kExact ? std::span(kExact)
                                             : std::span<const MpiRows>(kReduced);
}

Status EpRank::measure_mpi(int index, const EpTest& test) {
  for (const MpiRows rows : peers_of(test)) {
    if (!is_first()) break;
    WIDEEP_TRY_ASSIGN(const auto times, mpi_.measure(test.tokens, rows, setup_.options.block));
    WIDEEP_TRY(report(
        {.test = index,
         .kind = EpSample::kMpi + static_cast<int>(rows),
         .block = {.round = test.tokens > 0 ? times.round : times.mean, .mean = times.mean}}));
  }
  return endpoint_.barrier(kBlock);
}

}  // namespace

EpRoundSetup round_setup(const EpRankSetup& setup, const EpTest& test) {
  return {.group = setup.options.group,
          .hidden = setup.options.hidden,
          .rows = test.form.rows,
          .results = test.form.results,
          .combine = test.combine,
          .sum = setup.options.sum,
          .makes_results = setup.options.makes_results,
          .strategy = setup.options.strategy,
          .num_tokens = test.tokens,
          .kernels = setup.kernels};
}

Status run_ep_rank(const EpRankSetup& setup, transport::Endpoint& endpoint,
                   const transport::Messenger& pipe) {
  return EpRank(setup, endpoint, pipe).run();
}

}  // namespace wideep::measure
