// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine on emulated devices against the CPU path, over random cases; dead ranks and
// wrong input; and seeded faults in the kernels, each of which has to be found.
//
//   WIDEEP_CUDA_ROUNDS=100000 WIDEEP_CUDA_SEED=7 build/tests/cuda_emulated_test
#include "cuda/dispatch_combine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/sanitized.h"
#include "cuda/emulated/emulated_devices.h"
#include "cuda/emulated/seeded_faults_testing.h"
#include "cuda/exchange_case_testing.h"

namespace wideep::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Whether a kernel may begin before the one before it has ended.
bool overlaps(uint64_t seed) { return seed % 4 == 1; }

MachineOptions machine_for(const ExchangeCase& c, uint64_t seed) {
  const BufferLayout layout(c.shape);
  const auto ranks = static_cast<size_t>(c.shape.ep_size);
  const size_t rows = static_cast<size_t>(c.shape.max_tokens) *
                      (c.shape.row_bytes + static_cast<size_t>(c.hidden) * 16 +
                       static_cast<size_t>(c.shape.top_k) * 16 + ranks * 400);
  const size_t matrices = 2 * layout.segment_bytes() * 3 / 2 +
                          static_cast<size_t>(c.shape.max_tokens) * ranks *
                              static_cast<size_t>(layout.entries()) * 2 *
                              (c.shape.row_bytes + static_cast<size_t>(c.hidden) * 4 + 16);
  return {
      .num_devices = c.shape.ep_size,
      .max_blocks = std::max(c.options.num_blocks, c.options.num_receive_blocks),
      .max_threads = std::max(c.options.num_threads, c.options.num_index_threads),
      .memory_bytes = ranks * (layout.segment_bytes() + matrices + 3 * rows + (size_t{2} << 20)),
      .seed = seed,
      .overlaps_launches = overlaps(seed)};
}

std::string play_emulated(const ExchangeCase& c, uint64_t seed, const Mutation& mutation = {}) {
  EmulatedDevices devices(machine_for(c, seed));
  devices.machine().set_mutation(mutation);
  devices.set_max_delay(seed % 3 == 0 ? 2000 : 0);
  devices.set_dependent_launches(seed % 2 == 1);
  return play(devices, c).message();
}

// Two slots on each of 3 ranks.
ExchangeCase small_case() {
  ExchangeCase c;
  c.shape = {.ep_size = 3, .num_experts = 6, .slots_per_rank = 2, .top_k = 2, .max_tokens = 5};
  c.hidden = 24;
  c.shape.row_bytes = c.shape.result_bytes =
      static_cast<uint32_t>(kernels::row_bytes(RowFormat::kBf16, c.hidden));
  c.slot_experts = {0, 1, 2, 3, 4, 5};
  c.options = {.deadline = std::chrono::milliseconds(500),
               .num_blocks = 2,
               .num_threads = 64,
               .num_index_threads = 32,
               .num_receive_blocks = 2};
  c.seed = 3;
  return c;
}

// Most rounds are small, with one or two warps of a few ranks and short rows: they have all that
// decides about orders, and many more of them fit into the same time. One in `large` has more, and
// of these one in eight all that there is.
CaseLimits limits_of(uint64_t round, uint64_t large) {
  if (round % (8 * large) == 0) return {.max_ranks = 16, .ranks_die = true};
  if (round % large == 0) {
    return {.max_ranks = 6,
            .max_device_threads = 256,
            .max_hidden = 80,
            .max_tokens = 6,
            .max_warps = 2,
            .max_blocks = 2,
            .max_slots = 20,
            .ranks_die = true};
  }
  return {.max_ranks = 3,
          .max_device_threads = 128,
          .max_hidden = 20,
          .max_tokens = 3,
          .max_warps = 2,
          .max_blocks = 2,
          .max_slots = 4,
          .max_calls = 2,
          .ranks_die = true};
}

TEST(CudaExchangeTest, EqualsTheCpuPathOverRandomCases) {
  std::mt19937_64 random(from_environment("WIDEEP_CUDA_SEED", 1));
  const uint64_t rounds = from_environment("WIDEEP_CUDA_ROUNDS", base::kSanitized ? 128 : 1000);
  const uint64_t large = std::max<uint64_t>(1, from_environment("WIDEEP_CUDA_LARGE", 8));
  uint64_t num_deaths = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const ExchangeCase c = random_case(random, limits_of(round, large));
    num_deaths += c.dead_rank >= 0 ? 1 : 0;
    ASSERT_EQ(play_emulated(c, random()), "") << "round " << round << ": " << describe(c);
  }
  fmt::print("{} rounds, in {} of them a rank died\n", rounds, num_deaths);
}

TEST(CudaExchangeTest, KernelsBeginBeforeTheOnesBeforeThemHaveEnded) {
  for (const bool is_small : {false, true}) {
    ExchangeCase c = small_case();
    c.num_calls = 3;
    c.is_small = is_small;
    EmulatedDevices devices(machine_for(c, 1));
    devices.set_dependent_launches(true);
    EXPECT_EQ(play(devices, c).message(), "");
    // All of the three ranks' kernels but their first ones; the small round saves two.
    EXPECT_EQ(devices.machine().num_overlaps(), 3u * (3 * (is_small ? 4 : 6) - 1));
  }
}

// Of every number of ranks, once.
TEST(CudaExchangeTest, EqualsTheCpuPathForEveryNumberOfRanks) {
  std::mt19937_64 random(5);
  std::set<int> seen;
  while (seen.size() < 16) {
    const ExchangeCase c = random_case(random, {.max_ranks = 16, .max_hidden = 40});
    if (!seen.insert(c.shape.ep_size).second) continue;
    ASSERT_EQ(play_emulated(c, random()), "") << describe(c);
  }
}

// ---- failures ----

// What each rank says after a call in which one rank launches only its first kernels; finished:
// what the kernels did wrong.
std::vector<Status> play_with_dead_rank(int dead, int num_kernels, Status* finished,
                                        const Mutation& mutation = {}) {
  const ExchangeCase c = small_case();
  EmulatedDevices devices(machine_for(c, 11));
  devices.machine().set_mutation(mutation);
  const std::vector<CallTokens> calls = random_tokens(c);
  auto exchange = ExchangeOnDevices::create(devices, c);
  EXPECT_TRUE(exchange.ok());
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    const int kernels = rank == dead ? num_kernels : ExchangeOnDevices::kAllKernels;
    EXPECT_TRUE((*exchange)->write(rank, 0, calls[0][static_cast<size_t>(rank)]).ok());
    EXPECT_TRUE((*exchange)->launch(rank, 0, kernels).ok());
  }
  *finished = devices.finish();
  std::vector<Status> statuses;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    statuses.push_back((*exchange)->failure(rank));
  }
  return statuses;
}

TEST(CudaExchangeTest, ADeadRankEndsTheWaitsOfAllOthersAndIsNamed) {
  const char* const awaited[] = {"token counts", "dispatched rows", "expert results",
                                 "expert results"};
  for (int num_kernels = 0; num_kernels < 4; ++num_kernels) {
    Status finished;
    const std::vector<Status> statuses = play_with_dead_rank(1, num_kernels, &finished);
    EXPECT_EQ(finished.message(), "");
    int named = 0;
    for (const int survivor : {0, 2}) {
      EXPECT_FALSE(statuses[static_cast<size_t>(survivor)].ok());
      const std::string& message = statuses[static_cast<size_t>(survivor)].message();
      EXPECT_THAT(message, HasSubstr(fmt::format("rank {}, layer 3", survivor)));
      if (message.find("from rank 1 within the deadline") == std::string::npos) continue;
      EXPECT_THAT(message, HasSubstr(awaited[num_kernels]));
      ++named;
    }
    EXPECT_GE(named, 1);
  }
}

TEST(CudaExchangeTest, OthersGoOnWithoutADeadRank) {
  for (int num_kernels = 0; num_kernels < 4; ++num_kernels) {
    constexpr int kDead = 1;
    ExchangeCase c = small_case();
    c.num_calls = 2;
    ExchangeCase without = c;
    without.options.inactive_ranks = {kDead};
    EmulatedDevices devices(machine_for(c, 9));
    devices.set_dependent_launches(true);
    const std::vector<CallTokens> calls = random_tokens(c), later = random_tokens(without);
    const auto expected = run_on_cpu(without, later);
    auto exchange = ExchangeOnDevices::create(devices, c);
    ASSERT_TRUE(exchange.ok() && expected.ok());
    for (int rank = 0; rank < c.shape.ep_size; ++rank) {
      const int kernels = rank == kDead ? num_kernels : ExchangeOnDevices::kAllKernels;
      ASSERT_TRUE((*exchange)->write(rank, 0, calls[0][static_cast<size_t>(rank)]).ok());
      ASSERT_TRUE((*exchange)->launch(rank, 0, kernels).ok());
    }
    ASSERT_EQ(devices.finish().message(), "");
    for (const int rank : {0, 2}) {
      DispatchCombine& survivor = (*exchange)->rank(rank);
      EXPECT_FALSE(survivor.failure().ok());
      EXPECT_EQ(*survivor.num_calls_done(), 0u);
      EXPECT_TRUE(survivor.restart(without.options.inactive_ranks, 1).ok());
      EXPECT_TRUE(survivor.failure().ok());
      ASSERT_TRUE((*exchange)->write(rank, 1, later[1][static_cast<size_t>(rank)]).ok());
      ASSERT_TRUE((*exchange)->launch(rank, 1).ok());
    }
    ASSERT_EQ(devices.finish().message(), "");
    for (const int rank : {0, 2}) {
      EXPECT_EQ((*exchange)->failure(rank).message(), "");
      const RankResults& wanted = (*expected)[1][static_cast<size_t>(rank)];
      const int n = later[1][static_cast<size_t>(rank)].num_tokens;
      const auto found = (*exchange)->results(rank, 1, n, false);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(found->out, wanted.out);
    }
  }
}

TEST(CudaExchangeTest, NumbersOfCallsWrapAround) {
  ExchangeCase c = small_case();
  c.num_calls = 3;
  EmulatedDevices devices(machine_for(c, 4));
  const std::vector<CallTokens> calls = random_tokens(c);
  const auto expected = run_on_cpu(c, calls);
  auto exchange = ExchangeOnDevices::create(devices, c);
  ASSERT_TRUE(exchange.ok() && expected.ok());
  constexpr uint32_t kDone = 0xfffffffd;  // then come 0xfffffffe, 0xffffffff, 1
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    DispatchCombine& me = (*exchange)->rank(rank);
    ASSERT_TRUE(me.restart({}, kDone).ok());
    for (int source = 0; source < c.shape.ep_size; ++source) {
      for (const Channel channel : {Channel::kPrepare, Channel::kDispatch, Channel::kCombine}) {
        uint32_t* flag = me.exchange().layout.flag(me.segment(), channel, source);
        ASSERT_TRUE(devices.write(rank, flag, &kDone, sizeof(kDone)).ok());
      }
    }
  }
  for (int call = 0; call < c.num_calls; ++call) {
    for (int rank = 0; rank < c.shape.ep_size; ++rank) {
      const auto at = static_cast<size_t>(call);
      ASSERT_TRUE((*exchange)->write(rank, call, calls[at][static_cast<size_t>(rank)]).ok());
      ASSERT_TRUE((*exchange)->launch(rank, call).ok());
    }
  }
  ASSERT_EQ(devices.finish().message(), "");
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    EXPECT_EQ(compare_rank(**exchange, c, rank, *expected).message(), "");
    EXPECT_EQ(*(*exchange)->rank(rank).num_calls_done(), 1u);
  }
}

TEST(CudaExchangeTest, RanksThatAreNotActiveAreNotAwaited) {
  ExchangeCase c = small_case();
  c.options.inactive_ranks = {1};
  c.num_calls = 2;
  EXPECT_EQ(play_emulated(c, 1), "");
}

// The messages of ranks 0 and 1 if rank 0 has two tokens, of which the second has these slots.
std::pair<std::string, std::string> play_wrong_slots(std::vector<int32_t> slots, int num_tokens,
                                                     std::vector<int> inactive = {},
                                                     const Mutation& mutation = {},
                                                     std::set<Site>* sites = nullptr) {
  ExchangeCase c = small_case();
  c.prepares = false;
  c.options.inactive_ranks = std::move(inactive);
  EmulatedDevices devices(machine_for(c, 2));
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  CallTokens call = random_tokens(c)[0];
  auto exchange = ExchangeOnDevices::create(devices, c);
  EXPECT_TRUE(exchange.ok());
  const auto row = static_cast<size_t>(c.shape.row_bytes);
  slots.insert(slots.begin(), {0, 1});
  call[0] = {.num_tokens = num_tokens,
             .slots = std::move(slots),
             .experts = {0, 1, 0, 1},
             .weights = {1.0f, 1.0f, 1.0f, 1.0f},
             .rows = std::vector<std::byte>(2 * row),
             .shared = std::vector<float>(2 * static_cast<size_t>(c.hidden))};
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (!c.is_active(rank)) continue;
    if (rank > 0) call[static_cast<size_t>(rank)] = RankTokens{};
    EXPECT_TRUE((*exchange)->write(rank, 0, call[static_cast<size_t>(rank)]).ok());
    EXPECT_TRUE((*exchange)->launch(rank, 0).ok());
  }
  const Status finished = devices.finish();
  if (sites != nullptr) *sites = devices.machine().sites();
  if (mutation.fault == Fault::kNone) {
    EXPECT_EQ(finished.message(), "");
  }
  if (!finished.ok()) return {finished.message(), finished.message()};
  return {(*exchange)->failure(0).message(), (*exchange)->failure(1).message()};
}

TEST(CudaExchangeTest, WrongSlotsFailTheGroup) {
  for (const std::vector<int32_t>& slots :
       {std::vector{0, 6}, std::vector{-1, 0}, std::vector{3, 3}}) {
    const auto [mine, peers] = play_wrong_slots(slots, 2);
    EXPECT_THAT(mine,
                AllOf(HasSubstr("rank 0"), HasSubstr("token 1"), HasSubstr("twice the same")));
    EXPECT_THAT(peers, AllOf(HasSubstr("rank 1"), HasSubstr("rank 0 failed first")));
  }
}

TEST(CudaExchangeTest, TooManyTokensFailTheGroup) {
  const auto [mine, peers] = play_wrong_slots({0, 1}, 6);
  EXPECT_THAT(mine, HasSubstr("6 tokens, more than"));
  EXPECT_THAT(peers, HasSubstr("rank 0 failed first"));
}

TEST(CudaExchangeTest, SlotsOfRanksThatAreNotActiveFailTheGroup) {
  const auto [mine, peers] = play_wrong_slots({0, 5}, 2, {2});
  EXPECT_THAT(mine, HasSubstr("a slot of rank 2, which is not active"));
  EXPECT_THAT(peers, HasSubstr("rank 0 failed first"));
}

TEST(CudaExchangeTest, RefusesShapesBeforeTheFirstKernel) {
  const auto message = [](const ExchangeShape& shape, const DispatchCombineOptions& options) {
    EmulatedDevices devices({.num_devices = 1});
    return DispatchCombine::create_all(devices, shape, options).status().message();
  };
  const ExchangeCase c = small_case();
  ExchangeShape shape = c.shape;
  shape.top_k = 7;
  EXPECT_THAT(message(shape, c.options), HasSubstr("top_k 7, expected 1 to 6"));
  shape = c.shape;
  shape.ep_size = 129;
  EXPECT_THAT(message(shape, c.options), HasSubstr("ep_size 129, expected 1 to 128"));
  shape = {.ep_size = 1, .slots_per_rank = 500, .row_bytes = 1, .result_bytes = 1};
  EXPECT_THAT(message(shape, {.num_index_threads = 1024}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(message(c.shape, {.num_threads = 100}), HasSubstr("blocks of 100 threads"));
}

TEST(CudaExchangeTest, ResultsThatAreNotReducedAsTheShapeSaysAreRefused) {
  ExchangeCase c = small_case();
  const DispatchCombineOptions options = c.options;
  EmulatedDevices devices(machine_for(c, 1));
  std::vector<std::byte> memory(4096);
  const ResultMatrix matrix{memory.data(), 48, RowFormat::kBf16, c.hidden};
  auto exact = DispatchCombine::create_all(devices, c.shape, options);
  ASSERT_TRUE(exact.ok()) << exact.status().message();
  EXPECT_THAT((*exact)[0].reduce(matrix, RowFormat::kBf16).message(),
              HasSubstr("expected an exchange whose results are reduced"));
  c.shape.is_reduced = true;
  auto reduced = DispatchCombine::create_all(devices, c.shape, options);
  ASSERT_TRUE(reduced.ok()) << reduced.status().message();
  EXPECT_THAT((*reduced)[0].finalize(memory.data(), 48).message(),
              HasSubstr("expected reduce instead"));
  EXPECT_THAT((*reduced)[0].reduce(matrix, RowFormat::kF32).message(),
              HasSubstr("to results of 96 bytes: expected"));
  EXPECT_THAT((*reduced)[0]
                  .reduce({memory.data(), 40, RowFormat::kBf16, c.hidden}, RowFormat::kBf16)
                  .message(),
              HasSubstr("stride 40, expected a multiple of 16"));
}

// ---- seeded faults ----

// The cases in which a fault is looked for, until one finds it.
std::vector<ExchangeCase> cases_for_faults(int count) {
  std::mt19937_64 random(17);
  std::vector<ExchangeCase> cases;
  while (static_cast<int>(cases.size()) < count) {
    ExchangeCase c =
        random_case(random, {.max_ranks = 4, .max_device_threads = 512, .max_hidden = 300});
    if (c.shape.ep_size < 2) continue;
    c.prepares = true;
    c.num_calls = 2;
    c.expands = cases.size() % 2 == 0;
    cases.push_back(c);
  }
  return cases;
}

std::set<Site> sites_of(const std::vector<ExchangeCase>& cases) {
  std::set<Site> sites;
  play_wrong_slots({3, 3}, 2, {}, {}, &sites);  // where failures are kept and told
  for (const ExchangeCase& c : cases) {
    EmulatedDevices devices(machine_for(c, 1));
    devices.machine().record_sites(true);
    EXPECT_EQ(play(devices, c).message(), "");
    for (const Site& site : devices.machine().sites()) {
      // Statistics have a test of their own.
      const auto is_of = [&](const char* file) {
        return site.file.find(file) != std::string::npos;
      };
      if (!is_of("echo_experts") && !is_of("load_counts")) sites.insert(site);
    }
  }
  return sites;
}

// The first message that tells of the fault; empty: none of the cases finds it.
std::string find_fault(const std::vector<ExchangeCase>& cases, const Mutation& mutation) {
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string message = play_emulated(cases[i], i + 1, mutation);
    if (!message.empty()) return message;
  }
  for (int num_kernels = 0; num_kernels < 4; ++num_kernels) {
    Status finished;
    const std::vector<Status> statuses = play_with_dead_rank(1, num_kernels, &finished, mutation);
    if (!finished.ok()) return finished.message();
    bool is_named = false;
    for (const int rank : {0, 2}) {
      const std::string& message = statuses[static_cast<size_t>(rank)].message();
      is_named = is_named || message.find("from rank 1 within the deadline") != std::string::npos;
      if (message.find(fmt::format("rank {}, layer 3, call 1: ", rank)) == 0) continue;
      return "a rank that is not told of a failure: " + message;
    }
    if (!is_named) return "a dead rank that is not named";
  }
  const auto [mine, peers] = play_wrong_slots({3, 3}, 2, {}, mutation);
  const auto [wanted_mine, wanted_peers] = play_wrong_slots({3, 3}, 2);
  if (mine != wanted_mine) return mine;
  return peers == wanted_peers ? "" : peers;
}

// Every operation of the kernels, at every place, with every fault.
TEST(CudaExchangeTest, EveryFaultInTheKernelsIsFound) {
  const std::vector<ExchangeCase> cases = cases_for_faults(24);
  EXPECT_EQ(missed_faults(sites_of(cases),
                          [&](const Mutation& mutation) { return find_fault(cases, mutation); }),
            "");
}

}  // namespace
}  // namespace wideep::cuda
