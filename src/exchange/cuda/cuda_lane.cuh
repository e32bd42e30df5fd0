// SPDX-License-Identifier: Apache-2.0
//
// The lane of a real CUDA thread (lane.h says what the operations do): each is one instruction or a
// few. `system` scope reaches all GPUs and the host, `device` scope this GPU.
//
// Thread safety: as lane.h says.
#pragma once

#include <bit>
#include <type_traits>

#include "cuda/lane.h"

namespace wideep::cuda {

class CudaLane {
 public:
  static constexpr bool kHasManyRegisters = false;

  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int num_threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int num_blocks() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ __forceinline__ int warp() const { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ __forceinline__ int num_warps() const {
    return static_cast<int>(blockDim.x) / kWarpSize;
  }

  template <typename T>
  __device__ __forceinline__ T* shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<T*>(memory);
  }

  template <typename T>
  __device__ __forceinline__ T load(const T* from) {
    return *from;
  }
  template <typename T>
  __device__ __forceinline__ void store(T* to, const std::type_identity_t<T>& value) {
    *to = value;
  }

  __device__ __forceinline__ Vector load_from_memory(const Vector* from) {
    Vector v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "l"(from)
                 : "memory");
    return v;
  }

  __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() { __syncwarp(); }
  template <typename T>
  __device__ __forceinline__ T shuffle(T value, int from) {
    return __shfl_sync(kAllLanes, value, from);
  }
  __device__ __forceinline__ uint32_t ballot(bool value) { return __ballot_sync(kAllLanes, value); }
  __device__ __forceinline__ uint32_t match(int32_t value) {
    return __match_any_sync(kAllLanes, value);
  }

  __device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_release(uint32_t* to, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }
  // What peers write, too: system scope.
  __device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }

  __device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }

  // In shared or in global memory.
  __device__ __forceinline__ uint32_t atomic_add(uint32_t* at, uint32_t value) {
    return atomicAdd(at, value);
  }
  __device__ __forceinline__ uint32_t atomic_or(uint32_t* at, uint32_t value) {
    return atomicOr(at, value);
  }
  __device__ __forceinline__ uint32_t compare_exchange(uint32_t* at, uint32_t expected,
                                                       uint32_t value) {
    return atomicCAS(at, expected, value);
  }
  __device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* at, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(value)
                 : "memory");
    return before;
  }

  __device__ __forceinline__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  // Both do nothing in a launch without the attribute of programmatic dependent launches.
  __device__ __forceinline__ void await_predecessor() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
  }
  __device__ __forceinline__ void let_successor_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
  // Short: the flag of an empty round comes within a microsecond.
  __device__ __forceinline__ void pause() { __nanosleep(32); }
};

}  // namespace wideep::cuda
