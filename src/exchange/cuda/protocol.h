// SPDX-License-Identifier: Apache-2.0
//
// Flags, waits with deadlines, and failures, as all kernels of a call use them.
//
// Every kernel begins with begin_call. A block uses the first kControlBytes of its shared memory
// for what its threads decide together.
//
// Thread safety: all threads of a block call begin_call, await_ranks and is_last_block together.
#pragma once

#include "cuda/exchange.h"
#include "cuda/lane.h"

namespace wideep::cuda {

inline constexpr int kControlBytes = 16;

// The block's shared memory behind the control words.
template <typename T, typename Lane>
WIDEEP_DEVICE T* shared_after_control(Lane& lane) {
  return reinterpret_cast<T*>(lane.template shared<std::byte>() + kControlBytes);
}

template <typename Lane>
WIDEEP_DEVICE bool has_failed(Lane& lane, const Exchange& x) {
  return lane.load_relaxed(&x.state->is_failed) != 0;
}

template <typename Lane>
WIDEEP_DEVICE bool is_active(Lane& lane, const Exchange& x, int rank) {
  return (lane.load(&x.state->active_ranks[rank / 32]) >> (rank % 32) & 1u) != 0;
}

// One thread calls it.
template <typename Lane>
WIDEEP_DEVICE void fail(Lane& lane, const Exchange& x, const Failure& failure) {
  if (lane.compare_exchange(&x.state->is_failed, 0u, 1u) != 0) return;
  Failure* kept = &x.state->failure;
  lane.store(&kept->peer, failure.peer);
  lane.store(&kept->layer, failure.layer);
  lane.store(&kept->channel, failure.channel);
  lane.store(&kept->call, failure.call);
  lane.store(&kept->token, failure.token);
  lane.store(reinterpret_cast<uint32_t*>(&kept->code), static_cast<uint32_t>(failure.code));
  for (int peer = 0; peer < x.layout.shape().ep_size; ++peer) {
    if (!is_active(lane, x, peer)) continue;
    lane.store_relaxed(x.layout.failure(x.segments[peer], x.rank), 1u);
  }
}

// The number of the call, or 0 if this rank has failed: the same in all threads of the block.
template <typename Lane>
WIDEEP_DEVICE uint32_t begin_call(Lane& lane, const Exchange& x) {
  auto* control = lane.template shared<uint32_t>();
  if (lane.thread() == 0) {
    const uint32_t next = lane.load(&x.state->calls_done) + 1;
    const uint32_t call = next == 0 ? 1 : next;  // numbers wrap around; no call has number 0
    lane.store(control, has_failed(lane, x) ? 0u : call);
  }
  lane.sync();
  const uint32_t call = lane.load(control);
  lane.sync();  // all have read it before the word is used again
  return call;
}

// The block raises this rank's flag on all active ranks.
template <typename Lane>
WIDEEP_DEVICE void raise(Lane& lane, const Exchange& x, Channel channel, uint32_t call) {
  for (int peer = lane.thread(); peer < x.layout.shape().ep_size; peer += lane.num_threads()) {
    if (!is_active(lane, x, peer)) continue;
    lane.store_release(x.layout.flag(x.segments[peer], channel, x.rank), call);
  }
}

// Waits until a source has raised its flag. False: this rank has failed instead.
template <typename Lane>
WIDEEP_DEVICE bool await_source(Lane& lane, const Exchange& x, Channel channel, int source,
                                uint32_t call, int layer) {
  std::byte* mine = x.segments[x.rank];
  const uint32_t* flag = x.layout.flag(mine, channel, source);
  const uint32_t* peer_failed = x.layout.failure(mine, source);
  const auto failure = [&](FailureCode code) {
    return Failure{code, source, layer, static_cast<int32_t>(channel), call, -1};
  };
  const uint64_t end = lane.now_ns() + x.deadline_ns;
  // What ends the wait otherwise is looked at seldom: each look delays the next one at the flag.
  constexpr int kLooksAtFlag = 4;
  for (int look = 1;; ++look) {
    // Numbers of calls wrap around, so the difference counts.
    if (static_cast<int32_t>(lane.load_acquire(flag) - call) >= 0) return true;
    if (look % kLooksAtFlag != 0) {
      lane.pause();
      continue;
    }
    if (lane.load_relaxed(peer_failed) != 0) {
      fail(lane, x, failure(FailureCode::kPeerFailed));
      return false;
    }
    if (has_failed(lane, x)) return false;
    if (lane.now_ns() > end) {
      fail(lane, x, failure(FailureCode::kDeadline));
      return false;
    }
    lane.pause();
  }
}

// The block waits for the flags of all active ranks. Afterwards all its threads see what those
// wrote before. False, in all threads: this rank has failed. A barrier has to come before the
// control words are used again (is_last_block has one).
template <typename Lane>
WIDEEP_DEVICE bool await_ranks(Lane& lane, const Exchange& x, Channel channel, uint32_t call,
                               int layer) {
  auto* control = lane.template shared<uint32_t>();
  if (lane.thread() == 0) lane.store(control, 0u);
  lane.sync();
  for (int source = lane.thread(); source < x.layout.shape().ep_size;
       source += lane.num_threads()) {
    if (!is_active(lane, x, source)) continue;
    if (!await_source(lane, x, channel, source, call, layer)) lane.atomic_or(control, 1u);
  }
  lane.sync();
  return lane.load(control) == 0;
}

// The block has done its part; whether it is the last one of the grid, in all threads. The threads
// of the last block then see what all blocks have done.
template <typename Lane>
WIDEEP_DEVICE bool is_last_block(Lane& lane, uint32_t* num_done) {
  auto* control = lane.template shared<uint32_t>();
  lane.sync();
  if (lane.thread() == 0) {
    const uint32_t before = lane.atomic_add_acq_rel(num_done, 1u);
    const bool is_last = before + 1 == static_cast<uint32_t>(lane.num_blocks());
    if (is_last) lane.store(num_done, 0u);  // for the next call
    lane.store(control, is_last ? 1u : 0u);
  }
  lane.sync();
  return lane.load(control) != 0;
}

}  // namespace wideep::cuda
