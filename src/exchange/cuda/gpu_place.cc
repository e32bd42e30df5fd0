// SPDX-License-Identifier: Apache-2.0
//
// DeviceCommunicator on GPUs. no_gpu_place.cc stands in where there is no CUDA toolkit.
//
// The engine owns the thread and the stream. So the current GPU is put back after every call, an
// error of CUDA's is taken away so that the engine's next call does not find it, and launches go
// to the stream of each call. All kernels are loaded when a rank joins: CUDA loads them lazily
// otherwise, and a load waits for kernels that run, among them one that waits for this rank.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cuda/cuda_devices.h"
#include "cuda/dependent_launches.h"
#include "cuda/device_communicator.h"
#include "cuda/symmetric_memory.h"

namespace wideep::cuda {
namespace {

// The calling thread's current GPU, for as long as this lives: callers keep theirs.
class CurrentGpu {
 public:
  explicit CurrentGpu(int number) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != number) error_ = cudaSetDevice(number);
    changed_ = error_ == cudaSuccess && before_ != number;
  }
  ~CurrentGpu() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

  Status status() const { return cuda_status(error_, "choosing the GPU"); }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

// Memory of one GPU, and launches onto one stream, the caller's.
class GpuStream final : public Devices {
 public:
  GpuStream(int number, bool are_dependent) : number_(number), are_dependent_(are_dependent) {}
  ~GpuStream() override {
    const CurrentGpu current(number_);
    for (void* memory : allocated_) cudaFree(memory);
  }

  void use(cudaStream_t stream) { stream_ = stream; }

  Result<std::byte*> allocate(int rank, size_t num_bytes, bool /*symmetric*/) override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, num_bytes);
    if (error != cudaSuccess) {
      cudaGetLastError();  // the caller's next call must not find it
      return cuda_status(
          error, fmt::format("rank {}: {} bytes of device memory", rank, num_bytes).c_str());
    }
    allocated_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  Status write(int /*rank*/, void* to, const void* from, size_t num_bytes) override {
    return copy(to, from, num_bytes, cudaMemcpyHostToDevice);
  }
  Status read(int /*rank*/, void* to, const void* from, size_t num_bytes) override {
    return copy(to, from, num_bytes, cudaMemcpyDeviceToHost);
  }
  Status clear(int /*rank*/, void* at, size_t num_bytes) override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    WIDEEP_TRY(cuda_status(cudaMemsetAsync(at, 0, num_bytes, stream_), "clearing memory"));
    return cuda_status(cudaStreamSynchronize(stream_), "clearing memory");
  }
  Status launch(int /*rank*/, const Kernel& kernel, const LaunchShape& shape) override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    // Dependent: the kernel in front may be the engine's, whose end it awaits like any other's.
    return cuda_status(launch_kernel(kernel, shape, stream_, are_dependent_), kernel_name(kernel));
  }
  Status finish() override {
    const CurrentGpu current(number_);
    return cuda_status(cudaDeviceSynchronize(), "the kernels of a rank");
  }
  // Only the emulator knows what is written.
  void forget(const void* /*at*/, size_t /*num_bytes*/) override {}
  bool is_written(const void* /*at*/, size_t /*num_bytes*/) const override { return true; }

 private:
  Status copy(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    WIDEEP_TRY(cuda_status(cudaMemcpyAsync(to, from, num_bytes, kind, stream_), "a copy"));
    return cuda_status(cudaStreamSynchronize(stream_), "a copy");
  }

  int number_;
  bool are_dependent_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> allocated_;
};

std::string uuid_of(const cudaDeviceProp& properties) {
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

class GpuPlace final : public RankPlace {
 public:
  GpuPlace(int number, const cudaDeviceProp& properties, bool are_dependent)
      : number_(number), properties_(properties), stream_(number, are_dependent) {}

  Devices& devices() override { return stream_; }
  Status use_stream(void* stream) override {
    stream_.use(static_cast<cudaStream_t>(stream));
    return {};
  }
  Status finish() override { return stream_.finish(); }

  int number() const override { return number_; }
  std::string name() const override {
    return fmt::format("GPU {} ({})", number_, properties_.name);
  }
  std::string id() const override { return uuid_of(properties_); }
  int num_multiprocessors() const override { return properties_.multiProcessorCount; }
  int max_threads() const override { return kMaxIndexThreads; }
  Result<size_t> free_bytes() const override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    size_t free = 0, total = 0;
    WIDEEP_TRY(cuda_status(cudaMemGetInfo(&free, &total), "free memory of the GPU"));
    return free;
  }

  // Of a GPU that this process does not see the driver tells when its memory is opened.
  Status check_access(const std::string& id, const std::string& name) const override {
    int count = 0;
    WIDEEP_TRY(cuda_status(cudaGetDeviceCount(&count), "looking for GPUs"));
    for (int peer = 0; peer < count; ++peer) {
      cudaDeviceProp properties;
      WIDEEP_TRY(cuda_status(cudaGetDeviceProperties(&properties, peer), "properties of a GPU"));
      if (uuid_of(properties) != id) continue;
      int can = 0;
      WIDEEP_TRY(cuda_status(cudaDeviceCanAccessPeer(&can, number_, peer), "access to a peer"));
      if (can != 0) return {};
      return failed(fmt::format(
          "CUDA: no peer access from {} to {} of another rank: expected GPUs with NVLink, or "
          "below one PCIe root with IOMMU off (nvidia-smi topo -p2p rw shows it)",
          this->name(), name));
    }
    return {};
  }

  Result<std::byte*> make_segment(size_t num_bytes) override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    WIDEEP_TRY_ASSIGN(SymmetricMemory mine, SymmetricMemory::create(num_bytes));
    memory_.push_back(std::move(mine));
    return memory_.back().data();
  }
  Status share(int socket) const override {
    WIDEEP_TRY_ASSIGN(const int descriptor, memory_.front().share());
    const Status sent = send_file_descriptor(socket, descriptor);
    close(descriptor);
    return sent;
  }
  Result<std::byte*> open(int socket, size_t num_bytes) override {
    const CurrentGpu current(number_);
    WIDEEP_TRY(current.status());
    WIDEEP_TRY_ASSIGN(const int descriptor, receive_file_descriptor(socket));
    WIDEEP_TRY_ASSIGN(SymmetricMemory theirs, SymmetricMemory::open(descriptor, num_bytes));
    memory_.push_back(std::move(theirs));
    return memory_.back().data();
  }

 private:
  int number_;
  cudaDeviceProp properties_;
  std::vector<SymmetricMemory> memory_;  // the first is this rank's; unmapped after the stream's
  GpuStream stream_;
};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Whether there is a driver, new enough, and a GPU.
Status check_driver() {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return failed(
        "CUDA: no driver of NVIDIA's on this machine (libcuda.so.1 was not found): expected one "
        "for GPUs; without it the CPU's communicator runs (wideep/communicator.h)");
  }
  cudaRuntimeGetVersion(&runtime);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return failed(fmt::format("CUDA: the driver is one for CUDA {}, expected {} or newer",
                              version_text(driver), version_text(runtime)));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return failed(fmt::format(
        "CUDA: a driver, but no GPU{}",
        visible == nullptr ? std::string() : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible)));
  }
  return cuda_status(error, "looking for GPUs");
}

// Loads all kernels, so that none is loaded while another rank's kernel waits: that could not end.
Status load_kernels(const cudaDeviceProp& properties, int number) {
  std::vector<KernelResources> list;
  const cudaError_t error = kernel_resources(kMaxThreads, &list);
  if (error != cudaErrorNoKernelImageForDevice) return cuda_status(error, "loading kernels");
  cudaGetLastError();
  return failed(fmt::format(
      "CUDA: GPU {} ({}) is of compute capability {}.{}, for which this build has no kernels: "
      "build with -DWIDEEP_CUDA_ARCHITECTURES={}{}",
      number, properties.name, properties.major, properties.minor, properties.major,
      properties.minor));
}

Result<std::unique_ptr<RankPlace>> find_gpu(int wanted) {
  WIDEEP_TRY_ASSIGN(const bool are_dependent, dependent_launches());
  WIDEEP_TRY(check_driver());
  int count = 0, number = wanted;
  WIDEEP_TRY(cuda_status(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (wanted == -1) WIDEEP_TRY(cuda_status(cudaGetDevice(&number), "the current GPU"));
  if (number < 0 || number >= count) {
    return invalid_input(fmt::format(
        "device: expected 0 to {}, or -1 for the current one, found {}", count - 1, wanted));
  }
  const CurrentGpu current(number);
  WIDEEP_TRY(current.status());
  cudaDeviceProp properties;
  WIDEEP_TRY(cuda_status(cudaGetDeviceProperties(&properties, number), "properties of the GPU"));
  WIDEEP_TRY(load_kernels(properties, number));
  return std::unique_ptr<RankPlace>(std::make_unique<GpuPlace>(number, properties, are_dependent));
}

}  // namespace
}  // namespace wideep::cuda

namespace wideep::ep {

// Makes no context, which takes memory: ranks ask before they know their GPU.
Status DeviceCommunicator::available() { return cuda::check_driver(); }

Result<DeviceCommunicator> DeviceCommunicator::join(const DeviceCommunicatorOptions& options) {
  WIDEEP_TRY(cuda::check_options(options));
  WIDEEP_TRY_ASSIGN(std::unique_ptr<cuda::RankPlace> place, cuda::find_gpu(options.device));
  return cuda::join_at(std::move(place), options);
}

}  // namespace wideep::ep
