// SPDX-License-Identifier: Apache-2.0
//
// Ranks on one GPU, in two ways:
//
//   kStreams    each rank has a stream of its own. Their kernels wait for each other, so all of
//               them have to be resident together: keep the blocks of all ranks within
//               num_multiprocessors(). The driver must neither load kernels lazily nor put streams
//               into one queue, so create() sets CUDA_MODULE_LOADING and
//               CUDA_DEVICE_MAX_CONNECTIONS: call it before anything else uses CUDA.
//   kOneLaunch  the same kernel of all ranks is one launch, of which every rank has some blocks. No
//               launch waits for another, as debuggers and profilers need it that run launches one
//               by one.
//
// Launches are dependent (programmatic dependent launch): a kernel's blocks come onto the
// multiprocessors while the kernel before still runs, wherever there is room, and then wait for its
// end. In streams, where ranks share a GPU, the blocks of two kernels of every rank have to be
// resident together. TRTLLM_ENABLE_PDL=0 launches one after the other (dependent_launches.h).
//
// Memory is cudaMalloc's. Symmetric memory between processes: symmetric_memory.h.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/devices.h"

namespace wideep::cuda {

// Launches one kernel; the error of the launch. is_dependent: it may begin before the kernel in
// front of it has ended.
cudaError_t launch_kernel(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream,
                          bool is_dependent = false);
// Launches the same kernel of several ranks at once, with shape's blocks for each. REQUIRES: the
// kernels are of one kind; at most kMaxInLaunch.
inline constexpr size_t kMaxInLaunch = 16;
cudaError_t launch_together(std::span<const Kernel> kernels, const LaunchShape& shape,
                            cudaStream_t stream, bool is_dependent = false);

Status cuda_status(cudaError_t error, const char* what);

// What a kernel needs, for occupancy.
struct KernelResources {
  const char* name;
  int registers;
  size_t local_bytes;  // of a thread: spilled registers
  int threads;         // of a block
  int blocks;          // that are resident on a multiprocessor
};
cudaError_t kernel_resources(int num_threads, std::vector<KernelResources>* list);

enum class Sharing { kStreams, kOneLaunch };

class CudaDevices final : public Devices {
 public:
  // What the driver has to know before its first call (kStreams). create() does it, too.
  static void set_environment();
  // Errors (failed): no driver, no GPU, not enough memory.
  static Result<std::unique_ptr<CudaDevices>> create(int num_ranks, Sharing sharing);
  ~CudaDevices() override;

  int num_multiprocessors() const { return num_multiprocessors_; }
  const std::string& name() const { return name_; }
  cudaStream_t stream(int rank) const {
    return streams_[sharing_ == Sharing::kStreams || is_background(rank) ? static_cast<size_t>(rank)
                                                                         : 0];
  }
  // The environment decides at first.
  void set_dependent_launches(bool on) { are_dependent_ = on; }
  // A stream of the least priority beside the ranks', for copies of experts (expert_copies.h): a
  // number that stands for it where other functions take a rank. Its launches are not dependent and
  // belong to no common launch. Errors (failed): what CUDA says.
  Result<int> add_background_stream();
  // kOneLaunch: the ranks whose kernels are launched together; at first all.
  void set_ranks(std::vector<int> ranks) { ranks_ = std::move(ranks); }

  Result<std::byte*> allocate(int rank, size_t num_bytes, bool symmetric) override;
  Status write(int rank, void* to, const void* from, size_t num_bytes) override;
  Status read(int rank, void* to, const void* from, size_t num_bytes) override;
  Status clear(int rank, void* at, size_t num_bytes) override;
  Status launch(int rank, const Kernel& kernel, const LaunchShape& shape) override;
  Status finish() override;
  void forget(const void* at, size_t num_bytes) override;
  bool is_written(const void* at, size_t num_bytes) const override;

 private:
  struct Waiting {
    Kernel kernel;
    LaunchShape shape;
  };

  explicit CudaDevices(Sharing sharing) : sharing_(sharing) {}
  Status launch_waiting();
  bool is_background(int rank) const { return static_cast<size_t>(rank) >= waiting_.size(); }

  const Sharing sharing_;
  bool are_dependent_ = true;

  int num_multiprocessors_ = 0;
  std::string name_;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> allocated_;
  std::vector<int> ranks_;
  std::vector<std::deque<Waiting>> waiting_;  // by rank; kOneLaunch
};

}  // namespace wideep::cuda
