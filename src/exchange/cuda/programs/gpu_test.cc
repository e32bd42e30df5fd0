// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine on a GPU against the CPU path, as dispatch_combine_test.cc has it on
// emulated devices. Skipped without a GPU.
//
//   WIDEEP_CUDA_ROUNDS=1000 WIDEEP_CUDA_SEED=7 build/src/exchange/cuda/programs/cuda_gpu_test
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/choose_slots_testing.h"
#include "cuda/counted_replicas.h"
#include "cuda/cuda_devices.h"
#include "cuda/exchange_case_testing.h"
#include "cuda/expert_copies_testing.h"
#include "cuda/load_statistics_testing.h"
#include "cuda/programs/rank_process_testing.h"
#include "cuda/symmetric_memory.h"

namespace wideep::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// How ranks share the GPU, and whether their launches are dependent.
struct Way {
  Sharing sharing = Sharing::kStreams;
  bool is_dependent = true;
};

class CudaGpuTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    int num_gpus = 0;
    if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) GTEST_SKIP() << "no GPU";
  }
};

std::string way_name(const ::testing::TestParamInfo<Way>& tested) {
  return std::string(tested.param.is_dependent ? "Dependent" : "") +
         (tested.param.sharing == Sharing::kStreams ? "Streams" : "OneLaunch");
}
INSTANTIATE_TEST_SUITE_P(Ways, CudaGpuTest,
                         ::testing::Values(Way{Sharing::kOneLaunch, false},
                                           Way{Sharing::kStreams, false},
                                           Way{Sharing::kOneLaunch, true},
                                           Way{Sharing::kStreams, true}),
                         way_name);

std::vector<int> active_ranks(const ExchangeCase& c) {
  std::vector<int> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (c.is_active(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string play_on_gpu(ExchangeCase c, const Way& way) {
  c.options.deadline = std::chrono::seconds(10);
  auto devices = CudaDevices::create(c.shape.ep_size, way.sharing);
  if (!devices.ok()) return devices.status().message();
  (*devices)->set_dependent_launches(way.is_dependent);
  (*devices)->set_ranks(active_ranks(c));
  return play(**devices, c).message();
}

TEST_P(CudaGpuTest, EqualsTheCpuPathOverRandomCases) {
  std::mt19937_64 random(from_environment("WIDEEP_CUDA_SEED", 1));
  const uint64_t rounds = from_environment("WIDEEP_CUDA_ROUNDS", 100);
  const auto max_ranks = static_cast<int>(from_environment("WIDEEP_CUDA_RANKS", 16));
  for (uint64_t round = 0; round < rounds; ++round) {
    const ExchangeCase c = random_case(random, {.max_ranks = max_ranks,
                                                // Two kernels of every rank have room together.
                                                .max_device_threads = 16384,
                                                .max_hidden = 1500,
                                                .max_tokens = 40,
                                                .max_warps = 16,
                                                .max_blocks = 8});
    ASSERT_EQ(play_on_gpu(c, GetParam()), "") << "round " << round << ": " << describe(c);
  }
  fmt::print("{} random rounds\n", rounds);
}

// 8 ranks with rows as DeepSeek-V3 has them.
ExchangeCase large_case(RowFormat row_format, RowFormat result_format, int num_tokens) {
  ExchangeCase c;
  c.shape = {
      .ep_size = 8, .num_experts = 256, .slots_per_rank = 32, .top_k = 8, .max_tokens = num_tokens};
  c.hidden = 7168;
  c.row_format = row_format;
  c.result_format = result_format;
  c.shape.row_bytes = static_cast<uint32_t>(kernels::row_bytes(row_format, c.hidden));
  c.shape.result_bytes = static_cast<uint32_t>(kernels::row_bytes(result_format, c.hidden));
  for (int slot = 0; slot < c.shape.num_slots(); ++slot) c.slot_experts.push_back(slot);
  c.has_shared_expert = true;
  c.expands = true;
  c.num_calls = 2;
  c.options = {
      .num_blocks = 8, .num_threads = 512, .num_index_threads = 1024, .num_receive_blocks = 4};
  return c;
}

TEST_P(CudaGpuTest, EqualsTheCpuPathForLargeRows) {
  const auto tokens = static_cast<int>(from_environment("WIDEEP_CUDA_TOKENS", 64));
  for (const auto& [row, result] :
       {std::pair(RowFormat::kBf16, RowFormat::kBf16), std::pair(RowFormat::kFp8, RowFormat::kBf16),
        std::pair(RowFormat::kFp8, RowFormat::kFp8),
        std::pair(RowFormat::kNvfp4, RowFormat::kNvfp4)}) {
    EXPECT_EQ(play_on_gpu(large_case(row, result, tokens), GetParam()), "");
  }
}

TEST_P(CudaGpuTest, EqualsTheCpuPathForLargeRowsWithReducedResults) {
  const auto tokens = static_cast<int>(from_environment("WIDEEP_CUDA_TOKENS", 16));
  for (const RowFormat result :
       {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8, RowFormat::kNvfp4}) {
    ExchangeCase c = large_case(RowFormat::kBf16, result, tokens);
    c.shape.is_reduced = true;
    c.expert_format = result == RowFormat::kF32 ? RowFormat::kF32 : RowFormat::kBf16;
    c.counts = true;
    c.num_calls = 1;
    EXPECT_EQ(play_on_gpu(c, GetParam()), "");
  }
}

ExchangeCase small_case() {
  ExchangeCase c = large_case(RowFormat::kBf16, RowFormat::kBf16, 8);
  c.hidden = 256;
  c.shape.row_bytes = c.shape.result_bytes = 512;
  c.options.num_blocks = 4;
  c.expands = false;
  c.num_calls = 1;
  c.seed = 5;
  return c;
}

TEST_F(CudaGpuTest, ADeadRankEndsTheWaitsOfAllOthersAndIsNamed) {
  ExchangeCase c = small_case();
  c.options.deadline = std::chrono::milliseconds(200);
  auto devices = CudaDevices::create(c.shape.ep_size, Sharing::kStreams);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  const std::vector<CallTokens> calls = random_tokens(c);
  auto exchange = ExchangeOnDevices::create(**devices, c);
  ASSERT_TRUE(exchange.ok()) << exchange.status().message();
  constexpr int kDead = 3;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    ASSERT_TRUE((*exchange)->write(rank, 0, calls[0][static_cast<size_t>(rank)]).ok());
  }
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    const int kernels = rank == kDead ? 1 : ExchangeOnDevices::kAllKernels;
    ASSERT_TRUE((*exchange)->launch(rank, 0, kernels).ok());
  }
  EXPECT_EQ((*devices)->finish().message(), "");
  int named = 0;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (rank == kDead) continue;
    const Status status = (*exchange)->failure(rank);
    EXPECT_FALSE(status.ok());
    fmt::print("{}\n", status.message());
    named += status.message().find("no dispatched rows from rank 3") != std::string::npos;
  }
  EXPECT_GE(named, 1);
}

void replay_a_graph(const ExchangeCase& c, bool is_dependent) {
  auto devices = CudaDevices::create(c.shape.ep_size, Sharing::kOneLaunch);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  (*devices)->set_dependent_launches(is_dependent);
  const std::vector<CallTokens> calls = random_tokens(c);
  const auto expected = run_on_cpu(c, calls);
  ASSERT_TRUE(expected.ok());
  auto exchange = ExchangeOnDevices::create(**devices, c);
  ASSERT_TRUE(exchange.ok()) << exchange.status().message();
  const auto each_rank = [&](const auto& body) {
    for (int rank = 0; rank < c.shape.ep_size; ++rank) {
      ASSERT_EQ(body(rank).message(), "");
    }
  };
  each_rank(
      [&](int rank) { return (*exchange)->write(rank, 0, calls[0][static_cast<size_t>(rank)]); });
  const cudaStream_t stream = (*devices)->stream(0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  each_rank([&](int rank) { return (*exchange)->launch(rank, 0); });
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  constexpr int kReplays = 50;
  for (int i = 0; i < kReplays; ++i) ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ((*devices)->finish().message(), "");
  each_rank([&](int rank) {
    uint32_t calls_done = 0;
    const Status read = (*devices)->read(rank, &calls_done,
                                         &(*exchange)->rank(rank).exchange().state->calls_done, 4);
    EXPECT_EQ(calls_done, static_cast<uint32_t>(kReplays));
    return read.ok() ? compare_rank(**exchange, c, rank, *expected) : read;
  });
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CudaGpuTest, AGraphIsReplayedCallAfterCall) {
  for (const bool is_dependent : {false, true}) {
    for (const bool is_small : {false, true}) {
      ExchangeCase c = small_case();
      c.is_small = is_small;
      replay_a_graph(c, is_dependent);
    }
  }
}

TEST_F(CudaGpuTest, ChoosesTheSlotsThatTheCpuChooses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const ChoiceCase c = random_choice(seed);
    auto devices = CudaDevices::create(c.shape.ep_size, Sharing::kStreams);
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(play_choice(**devices, c).message(), "") << "seed " << seed;
  }
}

TEST_F(CudaGpuTest, CopiesOfExpertsAreThoseOfTheCpusMover) {
  std::mt19937_64 random(from_environment("WIDEEP_CUDA_SEED", 1));
  const uint64_t rounds = from_environment("WIDEEP_CUDA_ROUNDS", 50);
  for (uint64_t round = 0; round < rounds; ++round) {
    CopyCase c = random_copies(random, round % 10 == 0 ? size_t{6} << 20 : 300'000);
    c.options.num_threads *= 4;
    if (round % 2 == 0) c.options.piece_bytes *= 64;
    auto devices = CudaDevices::create(1, Sharing::kStreams);
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    const auto stream = (*devices)->add_background_stream();
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    ASSERT_EQ(play_copies(**devices, *stream, c).message(), "") << "round " << round;
  }
}

TEST_F(CudaGpuTest, ExpertsAreOfferedAndTakenBetweenStreams) {
  auto devices = CudaDevices::create(1, Sharing::kStreams);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  const auto one = (*devices)->add_background_stream(), other = (*devices)->add_background_stream();
  ASSERT_TRUE(one.ok() && other.ok());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(TwoRanks(**devices, *one, *other).all().message(), "");
  EXPECT_THAT(TwoRanks(**devices, *one, *other).fetch_only().message(),
              HasSubstr("not offered within the deadline"));
}

TEST_P(CudaGpuTest, ChoosesByCountsTheSlotsThatTheCpuChooses) {
  const uint64_t max = std::min<uint64_t>(40, from_environment("WIDEEP_CUDA_ROUNDS", 40));
  for (uint64_t seed = 1; seed <= max; ++seed) {
    const ChoiceCase c = random_choice_by_counts(seed);
    auto devices = CudaDevices::create(c.shape.ep_size, GetParam().sharing);
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(play_choice_by_counts(**devices, c).message(), "") << "seed " << seed;
  }
}

// 256 experts on 288 slots of 8 ranks, of which one rank alone chooses; the counts are the
// host's.
TEST_F(CudaGpuTest, PrintsTheTimeOfAChoiceByCounts) {
  constexpr int kTokens = 64;
  ExchangeShape shape{.ep_size = 8,
                      .num_experts = 256,
                      .slots_per_rank = 36,
                      .top_k = 8,
                      .max_tokens = kTokens,
                      .row_bytes = 16,
                      .result_bytes = 16};
  balance::Placement placement{.num_experts = 256, .ep_size = 8, .slot_to_expert = {}};
  for (int slot = 0; slot < 288; ++slot) placement.slot_to_expert.push_back(slot * 37 % 256);
  auto devices = CudaDevices::create(shape.ep_size, Sharing::kStreams);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  auto ranks = DispatchCombine::create_all(**devices, shape, {});
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  DispatchCombine& me = (*ranks)[0];
  const auto replicas = upload_replicas(**devices, 0, shape, placement, 1);
  ASSERT_TRUE(replicas.ok()) << replicas.status().message();
  std::vector<int32_t> counts(256), totals(256), experts;
  for (int i = 0; i < kTokens * 8; ++i) {
    experts.push_back((i * i + i / 8) % 256);
    ++counts[static_cast<size_t>(experts.back())];
  }
  for (size_t e = 0; e < 256; ++e) totals[e] = 8 * counts[e];
  const std::vector<int32_t> tokens = {kTokens};
  const auto upload = [&](const void* from, size_t num_bytes) {
    std::byte* const memory = *(*devices)->allocate(0, num_bytes, false);
    EXPECT_TRUE((*devices)->write(0, memory, from, num_bytes).ok());
    return reinterpret_cast<int32_t*>(memory);
  };
  int32_t* const num_tokens = upload(tokens.data(), 4);
  int32_t* const on_device = upload(experts.data(), experts.size() * 4);
  int32_t* const slots = upload(experts.data(), experts.size() * 4);
  for (int source = 0; source < shape.ep_size; ++source) {
    ASSERT_TRUE((*devices)
                    ->write(0, me.exchange().layout.counts(me.segment(), source), counts.data(),
                            counts.size() * 4)
                    .ok());
  }
  ASSERT_TRUE((*devices)->write(0, const_cast<int32_t*>(me.totals()), totals.data(), 1024).ok());
  cudaEvent_t begin = nullptr, end = nullptr;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  constexpr int kLaunches = 50;
  for (int i = -5; i < kLaunches; ++i) {
    if (i == 0) cudaEventRecord(begin, (*devices)->stream(0));
    ASSERT_TRUE(me.choose_slots_by_counts(*replicas, num_tokens, on_device, slots).ok());
  }
  cudaEventRecord(end, (*devices)->stream(0));
  EXPECT_EQ((*devices)->finish().message(), "");
  float ms = 0.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  fmt::print("choice by counts, 256 experts on 288 slots of 8 ranks, 64 tokens: {:.1f} µs\n",
             ms * 1e3f / kLaunches);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

TEST_F(CudaGpuTest, ABalancerOnAnotherStreamGetsAllStatistics) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const StatisticsCase c = random_statistics(seed);
    auto devices = CudaDevices::create(c.num_streams(), Sharing::kStreams);
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(play_statistics(**devices, c).message(), "") << "seed " << seed;
  }
}

TEST_F(CudaGpuTest, RanksAreProcessesThatShareMemory) {
  for (const SharingWays ways : {kAnyWay, kFileDescriptor, kPeerAccess}) {
    EXPECT_EQ(run_rank_processes(2, ways).message(), "") << describe(ways);
  }
}

// Few machines are set up for it.
TEST_F(CudaGpuTest, RanksAreProcessesThatShareMemoryByFabricHandles) {
  const auto memory = SymmetricMemory::create(1, kFabricHandle);
  if (!memory.ok()) GTEST_SKIP() << memory.status().message();
  const auto handle = memory->handle();
  if (!handle.ok()) GTEST_SKIP() << handle.status().message();
  EXPECT_EQ(run_rank_processes(2, kFabricHandle).message(), "");
}

TEST_F(CudaGpuTest, SaysWhatSymmetricMemoryNeeds) {
  EXPECT_THAT(SymmetricMemory::create(size_t{1} << 50).status().message(),
              AllOf(HasSubstr("1125899906842624 bytes on GPU"), HasSubstr("are free")));
  const auto mine = SymmetricMemory::create(1 << 20);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  fmt::print("symmetric memory is shared by {}\n", describe(mine->ways()));
  const auto handle = mine->handle(kFileDescriptor);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  EXPECT_THAT(SymmetricMemory::open(*handle, 2 << 20).status().message(),
              HasSubstr("a peer shares 1048576 bytes, expected 2097152"));
}

}  // namespace
}  // namespace wideep::cuda

int main(int argc, char** argv) {
  wideep::cuda::CudaDevices::set_environment();
  if (const std::optional<int> code = wideep::cuda::run_as_rank_process()) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
