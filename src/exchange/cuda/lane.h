// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is written over: one CUDA thread's view of its block and of memory. Kernels are
// templates over it, so one source runs on a GPU (CudaLane, cuda_lane.cuh) and on a CPU
// (EmulatedLane, emulated/), where the tests prove it.
//
//   thread(), num_threads()       index in the block; a multiple of 32
//   block(), num_blocks()         index in the grid
//   lane(), warp(), num_warps()   index in the warp of 32; of the warp in the block
//   shared<T>()                   the block's shared memory
//   load(p), store(p, v)          plain accesses of 1, 2, 4, 8 or 16 bytes, aligned to their size.
//                                 All memory that other threads may touch is accessed through them.
//   load_from_memory(p)           as load, but never of what is still in a register or in a cache
//                                 of this block's own
//   sync(), sync_warp()           all threads of the block, of the warp: what one wrote before,
//                                 all see after
//   shuffle(v, from)              v of another lane
//   ballot(b), match(v)           bits of the lanes whose b is true; with an equal v. All 32 lanes
//                                 take part in these three, which order no memory accesses.
//   load_acquire(p)               with store_release: what was written before the store is seen
//   store_release(p, v)           after the load that returns v, by all ranks
//   load_relaxed(p)               of a word that all ranks may touch; they order nothing
//   store_relaxed(p, v)
//   atomic_add(p, v)              on this device; they order nothing and return the value before
//   atomic_or(p, v)
//   compare_exchange(p, old, v)
//   atomic_add_acq_rel(p, v)      acquires and releases, for all ranks
//   now_ns(), pause()             a clock for deadlines; called between two polls
//   await_predecessor()           the kernel may have begun before the one in front of it in its
//                                 stream has ended (a dependent launch). Every thread calls this
//                                 (run_kernel), and before it touches nothing that an earlier
//                                 kernel touches
//   kHasManyRegisters             false: loops that both sides share (base/plain_memory.h) are
//                                 spared a local
//   let_successor_begin()         the next kernel of the stream may begin when every block has
//                                 called this or ended. After await_predecessor: then all blocks
//                                 of this kernel have their places, and at most two kernels are
//                                 there
//
// Thread safety: a lane belongs to one thread.
#pragma once

#include <concepts>
#include <cstdint>

#include "base/host_device.h"

// Before a loop that has to be unrolled so that its arrays stay in registers.
#if defined(__CUDACC__) || defined(__clang__)
#define WIDEEP_UNROLL _Pragma("unroll")
#else
#define WIDEEP_UNROLL
#endif

namespace wideep::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

// The widest access of one thread.
struct alignas(16) Vector {
  uint32_t words[4];
};

template <typename L>
concept KernelLane = requires(L& lane, uint32_t* word, const uint32_t* read, Vector* vector,
                              const Vector& value, int32_t number) {
  { lane.thread() } -> std::same_as<int>;
  { lane.num_threads() } -> std::same_as<int>;
  { lane.block() } -> std::same_as<int>;
  { lane.num_blocks() } -> std::same_as<int>;
  { lane.lane() } -> std::same_as<int>;
  { lane.warp() } -> std::same_as<int>;
  { lane.num_warps() } -> std::same_as<int>;
  { lane.template shared<uint32_t>() } -> std::same_as<uint32_t*>;
  { lane.load(read) } -> std::same_as<uint32_t>;
  { lane.load_from_memory(static_cast<const Vector*>(vector)) } -> std::same_as<Vector>;
  lane.store(vector, value);
  lane.sync();
  lane.sync_warp();
  { lane.shuffle(number, 0) } -> std::same_as<int32_t>;
  { lane.ballot(true) } -> std::same_as<uint32_t>;
  { lane.match(number) } -> std::same_as<uint32_t>;
  { lane.load_acquire(read) } -> std::same_as<uint32_t>;
  lane.store_release(word, 1u);
  { lane.load_relaxed(read) } -> std::same_as<uint32_t>;
  lane.store_relaxed(word, 1u);
  { lane.atomic_add(word, 1u) } -> std::same_as<uint32_t>;
  { lane.atomic_or(word, 1u) } -> std::same_as<uint32_t>;
  { lane.compare_exchange(word, 0u, 1u) } -> std::same_as<uint32_t>;
  { lane.atomic_add_acq_rel(word, 1u) } -> std::same_as<uint32_t>;
  { lane.now_ns() } -> std::same_as<uint64_t>;
  lane.pause();
  lane.await_predecessor();
  lane.let_successor_begin();
};

// What a back end runs of a kernel: it begins when the one before it has ended, and by then the
// next one may take its places on the multiprocessors, so that its launch is over when this one
// ends.
template <typename Lane, typename Body>
WIDEEP_DEVICE void run_kernel(Lane& lane, const Body& body) {
  lane.await_predecessor();
  lane.let_successor_begin();
  body(lane);
}

// Number of set bits below bit `i`.
WIDEEP_HOST_DEVICE int bits_below(uint32_t bits, int i) {
  const uint32_t below = bits & ((1u << i) - 1u);
#if defined(__CUDA_ARCH__)
  return __popc(below);
#else
  return __builtin_popcount(below);
#endif
}
// Index of the lowest set bit. REQUIRES: bits is not 0.
WIDEEP_HOST_DEVICE int lowest_bit(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}
WIDEEP_HOST_DEVICE int num_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

}  // namespace wideep::cuda
