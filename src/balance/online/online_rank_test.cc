// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads that do nothing but rebalance: before every iteration each slot must hold the
// expert that the placement says, on all ranks the same placement.
#include "online/online_rank.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>

#include "base/content_hash.h"
#include "base/sanitized.h"
#include "base/trace.h"
#include "base/try.h"
#include "online/system_calls_testing.h"
#include "transport/rank_threads.h"

namespace wideep::online {
namespace {

constexpr int kExperts = 8, kLayers = 3, kSlots = 12;
const std::vector<int> kModelLayers = {4, 5, 7};  // their numbers in the model

// A pool whose records are filled with the number of their expert.
std::unique_ptr<weights::HostPool> numbered_pool() {
  const weights::ExpertShape shape{kernels::WeightFormat::kBf16, 32, 32};
  auto pool = weights::HostPool::create(shape, kLayers, kExperts).value();
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int expert = 0; expert < kExperts; ++expert) {
      std::memset(pool->record({layer, expert}), 16 * layer + expert, shape.record_bytes());
      pool->seal({layer, expert});
    }
  }
  return pool;
}

balance::ModelPlacement default_placements(int num_ranks) {
  balance::ModelPlacement model;
  model.num_slots = kSlots;
  for (int layer = 0; layer < kLayers; ++layer) {
    model.layers[layer] = balance::default_placement(kExperts, num_ranks, kSlots).value();
  }
  return model;
}

// By the kernel's clocks, of this process's threads with names that begin so: a second opinion on
// what they say themselves.
int64_t cpu_ns_of_threads(std::string_view prefix) {
  int64_t sum_ns = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream comm(task.path() / "comm");
    std::getline(comm, name);
    if (!name.starts_with(prefix)) continue;
    // CPUCLOCK_SCHED of one thread: the kernel's ABI, as pthread_getcpuclockid() makes it.
    const int id = std::stoi(task.path().filename());
    timespec now{};
    ::clock_gettime(static_cast<clockid_t>((~static_cast<unsigned>(id) << 3) | 6u), &now);
    sum_ns += now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  }
  return sum_ns;
}

// A policy that plans a random valid placement for some layers in each iteration.
class RandomPolicy : public UpdatePolicy {
 public:
  void add_counts(int, std::span<const int64_t>) override {}
  void add_counts(int, std::span<const int32_t>) override {}
  std::span<const LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                             std::span<const uint8_t> busy) override {
    updates_.clear();
    for (int layer = 0; layer < kLayers; ++layer) {
      if (busy[layer] != 0 || rng_() % 3 == 0) continue;
      LayerUpdate& update = updates_.emplace_back();
      update.layer_idx = layer;
      update.plan.placement = placements[layer];
      std::vector<int32_t>& slots = update.plan.placement.slot_to_expert;
      for (int i = 0; i < kSlots; ++i) {
        slots[i] = i < kExperts ? i : static_cast<int32_t>(rng_() % kExperts);
      }
      std::shuffle(slots.begin(), slots.end(), rng_);
    }
    return updates_;
  }
  const LoadWindow& window() const override { return window_; }
  std::span<const double> expected_load(int) override { return {}; }

 private:
  std::mt19937 rng_{7};
  std::vector<LayerUpdate> updates_;
  LoadWindow window_{{kLayers, kExperts, 2}, {}};
};

struct Run {
  int num_ranks = 2;
  int num_spares = 2;
  int layers_in_flight = 2;
  int64_t moves = 100;  // runs until the balancer has counted as many
  CopyHook on_copy = {};
  bool count_calls = false;  // system calls of what an engine calls in every iteration
  const base::TraceBuffer* trace = nullptr;  // of every second ten iterations
  LedgerOptions ledger = {.trial_rows = 0};
  // On rank 0, while all threads still run.
  std::function<void(const UpdateBoard&)> before_the_end = [](const UpdateBoard&) {};
};

struct Totals {
  int64_t moves = 0;
  int64_t hash_failures = 0;
  int64_t cancelled = 0;
  int64_t rebalances = 0;
  std::vector<int64_t> rank_moves;    // by rank
  std::vector<CountedCalls> counted;  // by rank
};

bool is_traced(int64_t iteration) { return iteration / 10 % 2 == 1; }

// One rank's slots, and its view of all ranks' placements.
class FakeEngine {
 public:
  FakeEngine(const OnlineSetup& setup, transport::Endpoint& endpoint, const Run& run)
      : setup_(setup),
        endpoint_(endpoint),
        run_(run),
        slots_per_rank_(kSlots / endpoint.num_ranks()) {
    memory_ = base::AlignedBytes(static_cast<size_t>(kLayers * slots_per_rank_) * bytes());
    for (int layer = 0; layer < kLayers; ++layer) {
      placements_.push_back(setup.placement.layers.at(layer).slot_to_expert);
      for (int slot = 0; slot < slots_per_rank_; ++slot) {
        records_.push_back(memory_.data() + records_.size() * bytes());
        std::memcpy(records_.back(), setup.pool.record({layer, expert_of(layer, slot)}), bytes());
      }
    }
  }

  // trace: switched on and off as it runs.
  Status run(base::TraceSwitch& trace) {
    OnlineRank online(setup_, endpoint_.rank());
    std::mt19937 rng(static_cast<uint32_t>(endpoint_.rank()));
    std::vector<transport::AgreedWords> all;
    for (int64_t n = 0;; ++n) {
      trace.set({.iteration = n, .on = is_traced(n)});
      transport::AgreedWords words = {};
      words[0] = placements_hash();
      words[1] = setup_.board.balancer().moves >= run_.moves ? 1 : 0;
      count_system_calls([&] { online.write_states(words); });
      WIDEEP_TRY(endpoint_.agree(words, {.what = "test"}, &all));
      for (const auto& each : all) {
        if (each[0] != words[0]) return failed("ranks differ in their placements");
      }
      if (all[0][1] == 1) {
        if (endpoint_.rank() == 0) run_.before_the_end(setup_.board);
        return endpoint_.agree(words, {.what = "end of test"}, &all);
      }
      if (n == 1'000'000) return failed("hardly anything moves");
      count_system_calls(
          [&] { online.apply(all, n, [&](const PublishedLayer& layer) { switch_layer(layer); }); });
      WIDEEP_TRY(check());
      if (rng() % 8 == 0) ::usleep(rng() % 300);
      const std::vector<int32_t> counts(kExperts, 1);
      count_system_calls([&] {
        for (int layer = 0; layer < kLayers; ++layer) online.add_counts(layer, counts);
        online.end_iteration(n, 8, 8000);
      });
    }
  }

  int64_t moves() const { return moves_; }

 private:
  size_t bytes() const { return setup_.pool.shape().record_bytes(); }
  int expert_of(int layer, int slot) const {
    return placements_[layer][endpoint_.rank() * slots_per_rank_ + slot];
  }
  uint64_t placements_hash() const {
    uint64_t hash = 0;
    for (const auto& slots : placements_) {
      hash = 31 * hash + base::content_hash(reinterpret_cast<const std::byte*>(slots.data()),
                                            slots.size() * sizeof(int32_t));
    }
    return hash;
  }
  void switch_layer(const PublishedLayer& layer) {
    placements_[layer.layer].assign(layer.slot_to_expert.begin(), layer.slot_to_expert.end());
    for (SlotRecord& slot : layer.slots) {
      std::swap(records_[layer.layer * slots_per_rank_ + slot.local_slot], slot.record);
      ++moves_;
    }
  }
  Status check() const {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int slot = 0; slot < slots_per_rank_; ++slot) {
        const std::byte* record = records_[layer * slots_per_rank_ + slot];
        const auto expected = static_cast<std::byte>(16 * layer + expert_of(layer, slot));
        for (size_t i = 0; i < bytes(); i += 61) {
          if (record[i] != expected) return failed("a slot does not hold its expert");
        }
      }
    }
    return {};
  }

  const OnlineSetup& setup_;
  transport::Endpoint& endpoint_;
  const Run& run_;
  int slots_per_rank_;
  base::AlignedBytes memory_;
  std::vector<std::vector<int32_t>> placements_;  // by layer
  std::vector<std::byte*> records_;               // by layer and slot
  int64_t moves_ = 0;
};

Totals run_ranks(const Run& run) {
  const auto pool = numbered_pool();
  const auto board = UpdateBoard::create({run.num_ranks, kLayers, kSlots}).value();
  const auto placement = default_placements(run.num_ranks);
  RandomPolicy policy;
  Totals totals;
  totals.rank_moves.resize(static_cast<size_t>(run.num_ranks));
  totals.counted.resize(static_cast<size_t>(run.num_ranks));
  const OnlineSetup setup{.board = *board,
                          .pool = *pool,
                          .placement = placement,
                          .options = {.layers_in_flight = run.layers_in_flight,
                                      .num_spares = run.num_spares,
                                      .look_interval = std::chrono::microseconds(50),
                                      .layers = kModelLayers,
                                      .ledger = run.ledger},
                          .policy = policy,
                          .on_rebalance = [&](const Rebalance&) { ++totals.rebalances; },
                          .on_copy = run.on_copy};
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = run.num_ranks, .segment_bytes = 64}, [&](transport::Endpoint& endpoint) {
        FakeEngine engine(setup, endpoint, run);
        if (run.count_calls) {
          EXPECT_TRUE(can_count_system_calls());
        }
        base::TraceSwitch trace;
        if (run.trace != nullptr) {
          base::trace_of_thread = {
              .rank_switch = &trace, .buffer = run.trace, .rank = endpoint.rank()};
        }
        const Status status = engine.run(trace);
        base::trace_of_thread = {};
        totals.counted[static_cast<size_t>(endpoint.rank())] = counted_system_calls();
        totals.rank_moves[static_cast<size_t>(endpoint.rank())] = engine.moves();
        return status;
      });
  for (const Status& status : statuses.value()) EXPECT_TRUE(status.ok()) << status.message();
  for (int rank = 0; rank < run.num_ranks; ++rank) {
    totals.hash_failures += board->updater(rank).hash_failures;
    totals.moves += totals.rank_moves[static_cast<size_t>(rank)];
  }
  totals.cancelled = board->balancer().cancelled;
  return totals;
}

TEST(OnlineRank, EverySlotHoldsItsExpertBeforeEveryIteration) {
  const Totals totals = run_ranks({.num_ranks = 3, .num_spares = 4, .moves = 200});
  EXPECT_GE(totals.moves, 200);
  EXPECT_GE(totals.rebalances, 4);
  EXPECT_EQ(totals.hash_failures, 0);
  EXPECT_EQ(totals.cancelled, 0);
}

TEST(OnlineRank, OneSpareRecordMakesSmallSteps) {
  const Totals totals = run_ranks({.num_ranks = 4, .num_spares = 1});
  EXPECT_GE(totals.moves, 100);
}

TEST(OnlineRank, ACorruptCopyIsRepeated) {
  const Totals totals = run_ranks({.on_copy = [](int, int, std::byte* record) {
    thread_local int copies = 0;  // of this rank: no copy is spoilt twice
    if (++copies % 5 == 0) record[100] ^= std::byte{1};
  }});
  EXPECT_GT(totals.hash_failures, 3);
  EXPECT_GE(totals.moves, 100);
  EXPECT_EQ(totals.cancelled, 0);
}

// One expert of the pool cannot be copied any more: its layers' plans are given up on all ranks,
// the others go on.
TEST(OnlineRank, AnExpertThatCannotBeCopiedBlocksOnlyItsOwnMoves) {
  const Totals totals = run_ranks({.num_ranks = 3,
                                   .num_spares = 4,
                                   .moves = 300,
                                   .on_copy = [](int layer, int expert, std::byte* record) {
                                     if (layer == 1 && expert == 3) record[0] ^= std::byte{1};
                                   }});
  EXPECT_GT(totals.cancelled, 0);
  EXPECT_GE(totals.moves, 300);
}

// Background threads decide, copy and hash during the test.
TEST(OnlineRank, TheForwardPathMakesNoSystemCall) {
  if (base::kSanitized) GTEST_SKIP() << "sanitizers make calls of their own";
  if (!can_count_system_calls()) GTEST_SKIP() << "this kernel has no syscall user dispatch";
  count_system_calls([] { ::getppid(); });
  ASSERT_EQ(counted_system_calls().count, 1) << "what counts does not see a call";
  const Totals totals =
      run_ranks({.num_ranks = 3, .num_spares = 4, .moves = 200, .count_calls = true});
  EXPECT_GE(totals.moves, 200);
  for (const CountedCalls& counted : totals.counted) {
    EXPECT_EQ(counted.count, 0) << "the first one is number " << counted.first_number;
  }
}

// They see the rank's switch, which its engine's thread sets.
TEST(OnlineRank, BackgroundThreadsWriteTraceEvents) {
  const auto trace = base::TraceBuffer::create(2).value();
  run_ranks({.moves = 400,
             .on_copy =
                 [](int, int, std::byte* record) {
                   thread_local int copies = 0;
                   if (++copies % 5 == 0) record[100] ^= std::byte{1};
                 },
             .trace = &trace});
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::pair<base::Lane, base::Span>, int> found;
    for (const base::TraceEvent& event : trace.events(rank)) {
      ++found[{event.lane, event.span}];
      EXPECT_TRUE(is_traced(event.iteration)) << event.iteration;
      const bool of_all = event.span == base::Span::kDecide;
      EXPECT_EQ(std::count(kModelLayers.begin(), kModelLayers.end(), event.layer), of_all ? 0 : 1);
      EXPECT_LT(event.detail, kExperts);
    }
    const auto count = [&](base::Lane lane, base::Span span) { return found[{lane, span}]; };
    EXPECT_GT(count(base::Lane::kCopies, base::Span::kCopyLayer), 0);
    EXPECT_GT(count(base::Lane::kCopies, base::Span::kCopyExpert), 0);
    EXPECT_GT(count(base::Lane::kCopies, base::Span::kCopyWrongHash), 0);
    EXPECT_EQ(count(base::Lane::kBalancer, base::Span::kDecide) > 0, rank == 0);
    EXPECT_EQ(count(base::Lane::kBalancer, base::Span::kPost) > 0, rank == 0);
  }
}

// The ledger's costs are what the kernel has counted of all background threads: planning,
// publishing and looking as well as the copies.
TEST(OnlineRank, WhatIsPaidIsTheProcessorTimeOfAllBackgroundThreads) {
  int64_t spent_ns = 0, paid_ns = 0;
  run_ranks({.num_ranks = 3,
             .num_spares = 4,
             .moves = 2000,
             .ledger = {.trial_rows = 1'000'000'000, .may_rest = false},
             .before_the_end = [&](const UpdateBoard& board) {
               ::usleep(20'000);  // each thread has told of its last work
               spent_ns = cpu_ns_of_threads("wideep-");
               paid_ns = board.balancer().paid_ns;
             }});
  EXPECT_GT(spent_ns, 10'000'000);
  // The two are read one after the other, while the threads run.
  EXPECT_NEAR(static_cast<double>(paid_ns) / static_cast<double>(spent_ns), 1.0, 0.1);
}

TEST(OnlineRank, ASlowCopierDelaysNoRank) {
  const Totals totals = run_ranks({.moves = 30, .on_copy = [](int layer, int, std::byte*) {
                                     if (layer == 0) ::usleep(5'000);
                                   }});
  EXPECT_EQ(totals.cancelled, 0);
}

}  // namespace
}  // namespace wideep::online
