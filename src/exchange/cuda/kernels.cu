// SPDX-License-Identifier: Apache-2.0
//
// The kernels on GPUs. Without fmt, whose constant expressions nvcc does not take.
#include "cuda/cuda_devices.h"
#include "cuda/cuda_lane.cuh"

namespace wideep::cuda {
namespace {

// Blocks have up to 1024 threads (index), so 64 registers.
template <typename Body>
__global__ void __launch_bounds__(kMaxIndexThreads, 1) run_wide(const __grid_constant__ Body body) {
  CudaLane lane;
  run_kernel(lane, body);
}

// Up to 512 threads: 128 registers, for the vectors that are under way.
template <typename Body>
__global__ void __launch_bounds__(kMaxThreads, 1) run(const __grid_constant__ Body body) {
  CudaLane lane;
  run_kernel(lane, body);
}

// A rank's part of a launch that several ranks share: every num_ranks-th block.
class SharedLaunchLane : public CudaLane {
 public:
  __device__ __forceinline__ explicit SharedLaunchLane(int num_ranks) : num_ranks_(num_ranks) {}
  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x) / num_ranks_; }
  __device__ __forceinline__ int num_blocks() const {
    return static_cast<int>(gridDim.x) / num_ranks_;
  }

 private:
  int num_ranks_;
};

template <typename Body>
struct Bodies {
  int num_ranks;
  Body of[kMaxInLaunch];
};

template <typename Body>
__device__ __forceinline__ void run_one(const Bodies<Body>& bodies) {
  SharedLaunchLane lane(bodies.num_ranks);
  run_kernel(lane, bodies.of[static_cast<int>(blockIdx.x) % bodies.num_ranks]);
}
template <typename Body>
__global__ void __launch_bounds__(kMaxIndexThreads, 1)
    run_together_wide(const __grid_constant__ Bodies<Body> bodies) {
  run_one(bodies);
}
template <typename Body>
__global__ void __launch_bounds__(kMaxThreads, 1)
    run_together(const __grid_constant__ Bodies<Body> bodies) {
  run_one(bodies);
}

template <typename Body>
constexpr bool is_wide() {
  return std::is_same_v<Body, ChooseByCounts> || std::is_same_v<Body, ChooseSlots> ||
         std::is_same_v<Body, IndexMessages> || std::is_same_v<Body, Prepare>;
}

template <typename Body>
constexpr auto* entry() {
  if constexpr (is_wide<Body>()) {
    return &run_wide<Body>;
  } else {
    return &run<Body>;
  }
}

template <typename Body>
constexpr auto* shared_entry() {
  if constexpr (is_wide<Body>()) {
    return &run_together_wide<Body>;
  } else {
    return &run_together<Body>;
  }
}

template <typename Body>
cudaError_t add_resources(const char* name, int num_threads, std::vector<KernelResources>* list) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, entry<Body>());
  if (error != cudaSuccess) return error;
  const int threads = is_wide<Body>() ? kMaxIndexThreads : num_threads;
  int blocks = 0;
  list->push_back({name, attributes.numRegs, attributes.localSizeBytes, threads, 0});
  const cudaError_t counted =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, entry<Body>(), threads, 0);
  list->back().blocks = blocks;
  return counted;
}

template <typename Argument>
cudaError_t launch(void (*entry)(Argument), const Argument& argument, int num_blocks,
                   const LaunchShape& shape, cudaStream_t stream, bool is_dependent) {
  cudaLaunchAttribute may_overlap{};
  may_overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  may_overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.num_threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &may_overlap;
  config.numAttrs = is_dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, entry, argument);
}

}  // namespace

cudaError_t launch_kernel(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream,
                          bool is_dependent) {
  return std::visit(
      [&]<typename Body>(const Body& body) {
        return launch(entry<Body>(), body, shape.num_blocks, shape, stream, is_dependent);
      },
      kernel);
}

cudaError_t launch_together(std::span<const Kernel> kernels, const LaunchShape& shape,
                            cudaStream_t stream, bool is_dependent) {
  if (kernels.empty() || kernels.size() > kMaxInLaunch) return cudaErrorInvalidValue;
  return std::visit(
      [&]<typename Body>(const Body&) {
        Bodies<Body> bodies;
        bodies.num_ranks = static_cast<int>(kernels.size());
        for (size_t i = 0; i < kernels.size(); ++i) bodies.of[i] = std::get<Body>(kernels[i]);
        return launch(shared_entry<Body>(), bodies, shape.num_blocks * bodies.num_ranks, shape,
                      stream, is_dependent);
      },
      kernels[0]);
}

cudaError_t kernel_resources(int num_threads, std::vector<KernelResources>* list) {
  cudaError_t error = cudaSuccess;
  const auto add = [&]<typename Body>(const char* name, const Body*) {
    if (error == cudaSuccess) error = add_resources<Body>(name, num_threads, list);
  };
  add("prepare", static_cast<const Prepare*>(nullptr));
  add("choose", static_cast<const ChooseSlots*>(nullptr));
  add("index", static_cast<const IndexMessages*>(nullptr));
  add("dispatch", static_cast<const Dispatch*>(nullptr));
  add("receive", static_cast<const Receive*>(nullptr));
  add("copy", static_cast<const CopyRecords*>(nullptr));
  add("small round", static_cast<const SmallRound*>(nullptr));
  add("expand", static_cast<const Expand*>(nullptr));
  add("finalize", static_cast<const Finalize*>(nullptr));
  add("combine f32", static_cast<const Combine<RowFormat::kF32>*>(nullptr));
  add("combine bf16", static_cast<const Combine<RowFormat::kBf16>*>(nullptr));
  add("combine fp8", static_cast<const Combine<RowFormat::kFp8>*>(nullptr));
  add("combine nvfp4", static_cast<const Combine<RowFormat::kNvfp4>*>(nullptr));
  add("count tokens", static_cast<const CountTokens*>(nullptr));
  add("end iteration", static_cast<const EndIteration*>(nullptr));
  add("take loads", static_cast<const TakeLoads*>(nullptr));
  add("choose by counts", static_cast<const ChooseByCounts*>(nullptr));
  add("reduce f32", static_cast<const ReduceResults<RowFormat::kF32>*>(nullptr));
  add("reduce bf16", static_cast<const ReduceResults<RowFormat::kBf16>*>(nullptr));
  add("reduce fp8", static_cast<const ReduceResults<RowFormat::kFp8>*>(nullptr));
  add("reduce nvfp4", static_cast<const ReduceResults<RowFormat::kNvfp4>*>(nullptr));
  add("combine reduced f32", static_cast<const CombineReduced<RowFormat::kF32>*>(nullptr));
  add("combine reduced bf16", static_cast<const CombineReduced<RowFormat::kBf16>*>(nullptr));
  add("combine reduced fp8", static_cast<const CombineReduced<RowFormat::kFp8>*>(nullptr));
  add("combine reduced nvfp4", static_cast<const CombineReduced<RowFormat::kNvfp4>*>(nullptr));
  return error;
}

}  // namespace wideep::cuda
