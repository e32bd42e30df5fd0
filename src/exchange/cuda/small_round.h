// SPDX-License-Identifier: Apache-2.0
//
// index, dispatch and receive in one launch, for rounds so small that launches take most of their
// time. A block has some destination ranks to itself: it gives their messages places, writes them
// and raises the flag, so no block waits for another one of its rank. A row is read once for each
// of its destinations, and no more than ep_size blocks write: rounds of many tokens are faster with
// the kernels one by one.
//
// What is written where is the same.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/dispatch.h"
#include "cuda/index_messages.h"
#include "cuda/receive.h"

namespace wideep::cuda {

struct SmallRound {
  IndexMessages index;
  Dispatch dispatch;
  Receive receive;

  // Bytes of shared memory that a block needs.
  static size_t shared_bytes(const ExchangeShape& shape, int num_threads) {
    const size_t index = IndexMessages::shared_bytes(shape, num_threads);
    const size_t receive = Receive::shared_bytes(shape);
    return index > receive ? index : receive;
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const Exchange& x = index.x;
    const uint32_t call = begin_call(lane, x);
    if (call == 0) return;
    const int n = index.num_tokens(lane, call);
    if (n < 0) return;
    for (int to = lane.block(); to < x.layout.shape().ep_size; to += lane.num_blocks()) {
      if (!is_active(lane, x, to)) continue;
      index.index_for(lane, to, n);
      lane.sync();
      dispatch.send_to(lane, to, n, call);
      lane.sync();
      if (lane.thread() == 0 && !has_failed(lane, x)) {
        lane.store_release(x.layout.flag(x.segments[to], Channel::kDispatch, x.rank), call);
      }
    }
    receive.await_and_list(lane, call);
  }
};

}  // namespace wideep::cuda
