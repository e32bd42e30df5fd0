// SPDX-License-Identifier: Apache-2.0
//
// Devices that are GPUs: all ranks of this process on one GPU, or one after the other on those that
// there are, each with a stream of its own.
//
// Ranks that share a GPU have to be resident together, because their kernels wait for each other:
// keep the blocks of all of them within num_multiprocessors(). The driver must neither load kernels
// lazily nor put streams into one queue, so create() sets CUDA_MODULE_LOADING and
// CUDA_DEVICE_MAX_CONNECTIONS: call it before anything else uses CUDA.
//
// Memory is cudaMalloc's. Symmetric memory between processes: symmetric_memory.h.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/devices.h"

namespace wideep::cuda {

// Launches one kernel; the error of the launch.
cudaError_t launch_kernel(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream);

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

class CudaDevices final : public Devices {
 public:
  // Errors (failed): no driver, no GPU, not enough memory.
  static Result<std::unique_ptr<CudaDevices>> create(int num_ranks);
  ~CudaDevices() override;

  int num_multiprocessors() const { return num_multiprocessors_; }
  const std::string& name() const { return name_; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }

  Result<std::byte*> allocate(int rank, size_t num_bytes, bool symmetric) override;
  Status write(int rank, void* to, const void* from, size_t num_bytes) override;
  Status read(int rank, void* to, const void* from, size_t num_bytes) override;
  Status clear(int rank, void* at, size_t num_bytes) override;
  Status launch(int rank, const Kernel& kernel, const LaunchShape& shape) override;
  Status finish() override;
  void forget(const void* at, size_t num_bytes) override;
  bool is_written(const void*, size_t) const override { return true; }

 private:
  CudaDevices() = default;

  int num_multiprocessors_ = 0;
  std::string name_;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> allocated_;
};

}  // namespace wideep::cuda
