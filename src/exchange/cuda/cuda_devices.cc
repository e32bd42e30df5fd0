// SPDX-License-Identifier: Apache-2.0
//
// With kOneLaunch a rank's launch waits in its queue until every rank has one; then the first ones
// are launched together. They must be of the same kernel, or the ranks have different programs,
// which is told instead of waited for. Copies wait for their stream: this place is for tests and
// measurements, where simple beats fast.
#include "cuda/cuda_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/try.h"
#include "cuda/dependent_launches.h"

namespace wideep::cuda {
namespace {

constexpr uint8_t kNotWritten = 0xd5;

}  // namespace

Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return failed(
      fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

void CudaDevices::set_environment() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

Result<std::unique_ptr<CudaDevices>> CudaDevices::create(int num_ranks, Sharing sharing) {
  set_environment();
  int num_devices = 0;
  WIDEEP_TRY(cuda_status(cudaGetDeviceCount(&num_devices), "looking for GPUs"));
  if (num_devices == 0) return failed("CUDA: no GPU");
  cudaDeviceProp properties;
  WIDEEP_TRY(cuda_status(cudaGetDeviceProperties(&properties, 0), "properties of the GPU"));
  std::unique_ptr<CudaDevices> devices(new CudaDevices(sharing));
  WIDEEP_TRY_ASSIGN(devices->are_dependent_, dependent_launches());
  devices->name_ = properties.name;
  devices->num_multiprocessors_ = properties.multiProcessorCount;
  WIDEEP_TRY(cuda_status(cudaSetDevice(0), "choosing the GPU"));
  // Above the background's, which is that of streams without a priority.
  int min = 0, greatest = 0;
  WIDEEP_TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&min, &greatest), "priorities"));
  for (int rank = 0; rank < num_ranks; ++rank) {
    cudaStream_t stream = nullptr;
    WIDEEP_TRY(cuda_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                           "a stream"));
    devices->streams_.push_back(stream);
    devices->ranks_.push_back(rank);
  }
  devices->waiting_.resize(static_cast<size_t>(num_ranks));
  return devices;
}

Result<int> CudaDevices::add_background_stream() {
  int min = 0, greatest = 0;
  WIDEEP_TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&min, &greatest), "priorities"));
  cudaStream_t stream = nullptr;
  WIDEEP_TRY(cuda_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, min),
                         "a stream in the background"));
  streams_.push_back(stream);
  return static_cast<int>(streams_.size()) - 1;
}

CudaDevices::~CudaDevices() {
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  for (void* memory : allocated_) cudaFree(memory);
}

Result<std::byte*> CudaDevices::allocate(int /*rank*/, size_t num_bytes, bool /*symmetric*/) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, num_bytes);
  if (error != cudaSuccess) {
    return cuda_status(error, fmt::format("{} bytes of device memory", num_bytes).c_str());
  }
  allocated_.push_back(memory);
  return static_cast<std::byte*>(memory);
}

Status CudaDevices::write(int rank, void* to, const void* from, size_t num_bytes) {
  if (num_bytes == 0) return {};
  WIDEEP_TRY(cuda_status(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyHostToDevice, stream(rank)),
                         "a copy"));
  return cuda_status(cudaStreamSynchronize(stream(rank)), "a copy to the device");
}

Status CudaDevices::read(int rank, void* to, const void* from, size_t num_bytes) {
  if (num_bytes == 0) return {};
  WIDEEP_TRY(cuda_status(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDeviceToHost, stream(rank)),
                         "a copy"));
  return cuda_status(cudaStreamSynchronize(stream(rank)), "a copy from the device");
}

Status CudaDevices::clear(int rank, void* at, size_t num_bytes) {
  WIDEEP_TRY(cuda_status(cudaMemsetAsync(at, 0, num_bytes, stream(rank)), "clearing memory"));
  return cuda_status(cudaStreamSynchronize(stream(rank)), "clearing memory");
}

Status CudaDevices::launch(int rank, const Kernel& kernel, const LaunchShape& shape) {
  if (sharing_ == Sharing::kStreams || is_background(rank)) {
    const bool is_dependent = are_dependent_ && !is_background(rank);
    return cuda_status(launch_kernel(kernel, shape, stream(rank), is_dependent),
                       kernel_name(kernel));
  }
  waiting_[static_cast<size_t>(rank)].push_back({kernel, shape});
  return launch_waiting();
}

// As long as every rank has a kernel, launches the first ones together.
Status CudaDevices::launch_waiting() {
  for (;;) {
    std::vector<Kernel> kernels;
    for (const int rank : ranks_) {
      const auto& waiting = waiting_[static_cast<size_t>(rank)];
      if (waiting.empty()) return {};
      kernels.push_back(waiting.front().kernel);
      if (kernels.back().index() != kernels.front().index()) {
        return failed("CUDA: ranks in one launch need the same kernels in the same order");
      }
    }
    const LaunchShape shape = waiting_[static_cast<size_t>(ranks_[0])].front().shape;
    for (const int rank : ranks_) waiting_[static_cast<size_t>(rank)].pop_front();
    WIDEEP_TRY(cuda_status(launch_together(kernels, shape, streams_[0], are_dependent_),
                           kernel_name(kernels[0])));
  }
}

Status CudaDevices::finish() {
  for (cudaStream_t stream : streams_) {
    WIDEEP_TRY(cuda_status(cudaStreamSynchronize(stream), "the kernels of a rank"));
  }
  return {};
}

// A GPU cannot tell what was written, so a pattern stands for what was not.
void CudaDevices::forget(const void* at, size_t num_bytes) {
  if (cudaMemsetAsync(const_cast<void*>(at), kNotWritten, num_bytes, streams_[0]) == cudaSuccess) {
    cudaStreamSynchronize(streams_[0]);
  }
}

bool CudaDevices::is_written(const void* at, size_t num_bytes) const {
  std::vector<uint8_t> bytes(num_bytes);
  if (cudaMemcpy(bytes.data(), at, num_bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
  return num_bytes == 0 ||
         std::ranges::any_of(bytes, [](uint8_t byte) { return byte != kNotWritten; });
}

}  // namespace wideep::cuda
