// SPDX-License-Identifier: Apache-2.0
#include "bench/ep_rank.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <limits>

#include "base/cpu_time.h"
#include "base/try.h"

namespace wideep::bench {
namespace {

constexpr transport::Awaited kBlock{.what = "a block of rounds"};
constexpr int kWarmRounds = 3;
constexpr int kBallRounds = 2000;

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

class EpRank {
 public:
  EpRank(const EpRankSetup& setup, transport::Endpoint& endpoint,
         const transport::MessagePipe& pipe)
      : setup_(setup), endpoint_(endpoint), pipe_(pipe), rounds_(setup.round, endpoint) {}

  Status run();

 private:
  bool is_first() const { return endpoint_.rank() == 0; }
  EpRankBlock& mine() { return setup_.board.block(endpoint_.rank()); }
  Status run_test(int test, int num_tokens);
  Status choose_num_rounds();
  Status measure_rounds(int test);
  Status measure_copies(int test);
  Status measure_ping_pong();
  void throw_ball() const;
  Status measure_mpi(int test, int num_tokens);
  Status tell(const EpSample& sample) const { return pipe_.send(sample.bytes()); }

  const EpRankSetup& setup_;
  transport::Endpoint& endpoint_;
  const transport::MessagePipe& pipe_;
  EpRounds rounds_;
  MpiBaseline mpi_;
};

Status EpRank::run() {
  stay_on(setup_.processors[static_cast<size_t>(endpoint_.rank())]);
  if (is_first() && !setup_.mpi_program.empty()) {
    WIDEEP_TRY(mpi_.start(setup_.mpi_program, {.group = setup_.options.group,
                                               .hidden = setup_.options.hidden,
                                               .processors = setup_.processors}));
  }
  WIDEEP_TRY(run_test(0, 0));
  int test = 0;
  for (const int num_tokens : setup_.options.tokens) WIDEEP_TRY(run_test(++test, num_tokens));
  return {};
}

Status EpRank::run_test(int test, int num_tokens) {
  WIDEEP_TRY(rounds_.set_tokens(num_tokens));
  mine().bytes = rounds_.bytes_per_round();
  WIDEEP_TRY(choose_num_rounds());
  for (int repeat = 0; repeat < setup_.options.repeats; ++repeat) {
    WIDEEP_TRY(measure_rounds(test));
    if (num_tokens == 0) WIDEEP_TRY(measure_ping_pong());
    if (num_tokens > 0 && setup_.options.with_copies) WIDEEP_TRY(measure_copies(test));
    if (!setup_.mpi_program.empty()) WIDEEP_TRY(measure_mpi(test, num_tokens));
  }
  return {};
}

Status EpRank::choose_num_rounds() {
  EpPhases phases;
  const int64_t start = base::wall_ns();
  for (int i = 0; i < kWarmRounds; ++i) WIDEEP_TRY(rounds_.round(&phases));
  const int64_t one = std::max<int64_t>(1, (base::wall_ns() - start) / kWarmRounds);
  if (is_first()) {
    const int64_t wanted = std::chrono::nanoseconds(setup_.options.block).count() / one;
    setup_.board.num_rounds() =
        static_cast<int>(std::clamp<int64_t>(wanted, 3, EpRankBlock::kMostRounds));
  }
  return endpoint_.meet(kBlock);
}

Status EpRank::measure_rounds(int test) {
  EpPhases phases;
  WIDEEP_TRY(rounds_.round(&phases));  // brings back what another block has pushed out of caches
  EpRankBlock& block = mine();
  WIDEEP_TRY(endpoint_.meet(kBlock));
  const int64_t cpu = base::thread_cpu_ns(), waited = endpoint_.waited_cpu_ns();
  block.start_ns = base::wall_ns();
  for (int i = 0; i < setup_.board.num_rounds(); ++i) {
    WIDEEP_TRY(rounds_.round(&block.rounds[i]));
  }
  block.end_ns = base::wall_ns();
  block.cpu_ns = base::thread_cpu_ns() - cpu;
  block.wait_ns = endpoint_.waited_cpu_ns() - waited;
  WIDEEP_TRY(endpoint_.meet(kBlock));
  if (!is_first()) return {};
  return tell({.test = test, .block = block_of_group(setup_.board, endpoint_.num_ranks())});
}

Status EpRank::measure_copies(int test) {
  rounds_.copy_round();
  WIDEEP_TRY(endpoint_.meet(kBlock));
  EpRankBlock& block = mine();
  block.start_ns = base::wall_ns();
  for (int i = 0; i < setup_.board.num_rounds(); ++i) rounds_.copy_round();
  block.end_ns = base::wall_ns();
  WIDEEP_TRY(endpoint_.meet(kBlock));
  if (!is_first()) return {};
  int64_t start = std::numeric_limits<int64_t>::max(), end = 0;
  for (int rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    start = std::min(start, setup_.board.block(rank).start_ns);
    end = std::max(end, setup_.board.block(rank).end_ns);
  }
  const double nanoseconds = static_cast<double>(end - start) / setup_.board.num_rounds();
  return tell({.test = test, .kind = EpSample::kCopy, .value = nanoseconds * 1e-3});
}

Status EpRank::measure_ping_pong() {
  const bool possible = endpoint_.num_ranks() > 1 && setup_.processors[0] != setup_.processors[1];
  if (!possible) return {};
  WIDEEP_TRY(endpoint_.meet(kBlock));
  const int64_t start = base::wall_ns();
  if (endpoint_.rank() < 2) throw_ball();
  const int64_t nanoseconds = base::wall_ns() - start;
  WIDEEP_TRY(endpoint_.meet(kBlock));
  if (!is_first()) return {};
  return tell({.kind = EpSample::kPingPong,
               .value = static_cast<double>(nanoseconds) / kBallRounds * 1e-3});
}

// Rank 0 stores a number, rank 1 answers with the same. Both are there: they have just met.
void EpRank::throw_ball() const {
  std::atomic<uint32_t>& ping = setup_.board.ball(0);
  std::atomic<uint32_t>& pong = setup_.board.ball(1);
  uint32_t value = (is_first() ? ping : pong).load();
  for (int i = 0; i < kBallRounds; ++i) {
    ++value;
    if (is_first()) ping.store(value, std::memory_order_release);
    while ((is_first() ? pong : ping).load(std::memory_order_acquire) != value) _mm_pause();
    if (!is_first()) pong.store(value, std::memory_order_release);
  }
}

Status EpRank::measure_mpi(int test, int num_tokens) {
  for (const MpiRows rows : kMpiRows) {
    if (!is_first()) continue;
    WIDEEP_TRY_ASSIGN(const double round, mpi_.measure(num_tokens, rows, setup_.options.block));
    WIDEEP_TRY(
        tell({.test = test, .kind = EpSample::kMpi + static_cast<int>(rows), .value = round}));
  }
  return endpoint_.meet(kBlock);
}

}  // namespace

Status run_ep_rank(const EpRankSetup& setup, transport::Endpoint& endpoint,
                   const transport::MessagePipe& pipe) {
  return EpRank(setup, endpoint, pipe).run();
}

}  // namespace wideep::bench
