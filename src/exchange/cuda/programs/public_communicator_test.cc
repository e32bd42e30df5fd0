// SPDX-License-Identifier: Apache-2.0
//
// wideep/device_communicator.h on a GPU, with ranks that are threads. Skipped without a GPU.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "base/try.h"
#include "wideep/device_communicator.h"

namespace wideep::cuda {
namespace {

using ::testing::HasSubstr;

class CudaGpuPublicTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = ep::DeviceCommunicator::available();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }
};

constexpr int kPublicTokens = 5, kPublicHidden = 64, kPublicRanks = 2;
constexpr size_t kPublicStride = kPublicHidden * sizeof(uint16_t);

ep::DeviceCommunicatorOptions public_options(int rank) {
  return {.group = fmt::format("gpu test {}", getpid()),
          .rank = rank,
          .num_ranks = kPublicRanks,
          .slots_per_rank = 2,
          .top_k = 2,
          .max_tokens = kPublicTokens,
          .hidden = kPublicHidden,
          .num_blocks = 4};
}

// Memory of the GPU, which the process's end frees.
template <typename T>
T* on_gpu(const std::vector<T>& values) {
  T* memory = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), values.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return memory;
}

// Tokens of a rank, on host and GPU. Made before any rank has a kernel that waits for another:
// allocating could wait for that kernel.
struct PublicRank {
  explicit PublicRank(int rank) : out(size_t{kPublicTokens} * kPublicHidden) {
    std::vector<int32_t> slots;
    for (int t = 0; t < kPublicTokens; ++t) {
      slots.insert(slots.end(), {(t + rank) % 4, (t + rank + 1 + t % 2) % 4});
      weights.insert(weights.end(), {0.3f + static_cast<float>(t), 0.7f});
      for (int i = 0; i < kPublicHidden; ++i) {
        rows.push_back(Bf16::round(0.37f * static_cast<float>(i - 9 * t + 5 * rank)));
      }
    }
    call = {.num_tokens = on_gpu(std::vector<int32_t>{kPublicTokens}),
            .slots = on_gpu(slots),
            .weights = on_gpu(weights),
            .layer = 7};
    gpu_rows = on_gpu(rows);
    gpu_out = on_gpu(out);
    matrix =
        on_gpu(std::vector<uint16_t>(size_t{kPublicRanks} * kPublicTokens * 2 * kPublicHidden));
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    call.stream = stream;
  }

  // Experts return their rows, so a token's output is (Σ weights) · row, in top-k order.
  Status run(ep::DeviceCommunicator& communicator) {
    WIDEEP_TRY(communicator.dispatch(call, gpu_rows, kPublicStride));
    WIDEEP_TRY(communicator.expand(call, matrix, kPublicStride));
    WIDEEP_TRY(communicator.finalize(call, matrix, kPublicStride));
    WIDEEP_TRY(communicator.combine(call, {.out = gpu_out, .out_stride = kPublicStride}));
    WIDEEP_TRY(communicator.status(call.stream));
    EXPECT_EQ(cudaMemcpy(out.data(), gpu_out, out.size() * 2, cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < out.size(); ++i) {
      const float* const weight = weights.data() + i / kPublicHidden * 2;
      const float value = std::bit_cast<float>(uint32_t{rows[i]} << 16);
      const uint16_t expected =
          Bf16::round(std::fma(weight[1], value, std::fma(weight[0], value, 0.0f)));
      if (out[i] != expected) {
        return failed(fmt::format("rank {}: value {}", communicator.rank(), i));
      }
    }
    return {};
  }

  std::vector<float> weights;
  std::vector<uint16_t> rows, out;
  ep::DeviceCall call;
  uint16_t *gpu_rows, *gpu_out, *matrix;
};

TEST_F(CudaGpuPublicTest, JoinsRanksOfThreads) {
  std::vector<Status> ended(kPublicRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kPublicRanks; ++rank) {
    ranks.emplace_back([&ended, rank] {
      ended[static_cast<size_t>(rank)] = [&]() -> Status {
        PublicRank mine(rank);
        WIDEEP_TRY_ASSIGN(ep::DeviceCommunicator communicator,
                          ep::DeviceCommunicator::join(public_options(rank)));
        for (int call = 0; call < 3; ++call) WIDEEP_TRY(mine.run(communicator));
        return {};
      }();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Status& status : ended) EXPECT_EQ(status.message(), "");
}

TEST_F(CudaGpuPublicTest, SaysThatMemoryIsMissing) {
  ep::DeviceCommunicatorOptions options = public_options(0);
  options.num_ranks = 1;
  options.max_tokens = 1 << 20;
  options.hidden = 1 << 18;
  EXPECT_THAT(ep::DeviceCommunicator::join(options).status().message(),
              HasSubstr("GB of device memory, GPU 0"));
}

}  // namespace
}  // namespace wideep::cuda
