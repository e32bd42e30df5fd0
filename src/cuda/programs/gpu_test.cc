// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine on a GPU against the CPU path, as dispatch_combine_test.cc has it on
// emulated devices. Skipped without a GPU.
//
//   WIDEEP_CUDA_ROUNDS=1000 WIDEEP_CUDA_SEED=7 build/src/cuda/programs/cuda_gpu_test
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/choose_slots_testing.h"
#include "cuda/cuda_devices.h"
#include "cuda/exchange_case_testing.h"
#include "cuda/programs/rank_process_testing.h"

namespace wideep::cuda {
namespace {

using ::testing::HasSubstr;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class CudaGpuTest : public ::testing::TestWithParam<Sharing> {
 protected:
  void SetUp() override {
    int num_gpus = 0;
    if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) GTEST_SKIP() << "no GPU";
  }
};

std::string sharing_name(const ::testing::TestParamInfo<Sharing>& tested) {
  return tested.param == Sharing::kStreams ? "Streams" : "OneLaunch";
}
INSTANTIATE_TEST_SUITE_P(Sharings, CudaGpuTest,
                         ::testing::Values(Sharing::kOneLaunch, Sharing::kStreams), sharing_name);

std::vector<int> active_ranks(const ExchangeCase& c) {
  std::vector<int> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (c.is_active(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string play_on_gpu(ExchangeCase c, Sharing sharing) {
  c.options.deadline = std::chrono::seconds(10);
  auto devices = CudaDevices::create(c.shape.ep_size, sharing);
  if (!devices.ok()) return devices.status().message();
  (*devices)->set_ranks(active_ranks(c));
  return play(**devices, c).message();
}

TEST_P(CudaGpuTest, EqualsTheCpuPathOverRandomCases) {
  std::mt19937_64 random(from_environment("WIDEEP_CUDA_SEED", 1));
  const uint64_t rounds = from_environment("WIDEEP_CUDA_ROUNDS", 100);
  const auto most_ranks = static_cast<int>(from_environment("WIDEEP_CUDA_RANKS", 16));
  for (uint64_t round = 0; round < rounds; ++round) {
    const ExchangeCase c = random_case(random, {.most_ranks = most_ranks,
                                                .most_device_threads = 32768,
                                                .most_hidden = 1500,
                                                .most_tokens = 40,
                                                .most_warps = 16,
                                                .most_blocks = 8});
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
      .num_blocks = 16, .num_threads = 512, .num_index_threads = 1024, .num_receive_blocks = 4};
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

TEST_F(CudaGpuTest, AGraphIsReplayedCallAfterCall) {
  ExchangeCase c = small_case();
  auto devices = CudaDevices::create(c.shape.ep_size, Sharing::kOneLaunch);
  ASSERT_TRUE(devices.ok()) << devices.status().message();
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

TEST_F(CudaGpuTest, ChoosesTheSlotsThatTheCpuChooses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const ChoiceCase c = random_choice(seed);
    auto devices = CudaDevices::create(c.shape.ep_size, Sharing::kStreams);
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(play_choice(**devices, c).message(), "") << "seed " << seed;
  }
}

TEST_F(CudaGpuTest, RanksAreProcessesThatShareMemory) {
  EXPECT_EQ(run_rank_processes(2).message(), "");
}

}  // namespace
}  // namespace wideep::cuda

int main(int argc, char** argv) {
  wideep::cuda::CudaDevices::set_environment();
  if (const std::optional<int> code = wideep::cuda::run_as_rank_process()) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
