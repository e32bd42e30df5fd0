// SPDX-License-Identifier: Apache-2.0
#include "online/load_mailbox.h"

#include <algorithm>
#include <utility>

namespace wideep::online {

void LoadMailbox::end_iteration(int64_t iteration, int64_t rows, int64_t ns) {
  filling_.first_rank_rows += rows;
  filling_.first_rank_ns += ns;
  if (filling_.num_iterations++ == 0) filling_.first_iteration = iteration;
  // Pairs with the release in done(): the sums in handed_ are zero before the engine fills them.
  if (full_.load(std::memory_order_acquire)) return;
  std::swap(filling_, handed_);
  // Pairs with the acquire in look(): the balancer sees the counts.
  full_.store(true, std::memory_order_release);
}

void LoadMailbox::done() {
  handed_.num_iterations = handed_.first_rank_rows = handed_.first_rank_ns = 0;
  std::fill(handed_.tokens.begin(), handed_.tokens.end(), 0);
  full_.store(false, std::memory_order_release);
}

}  // namespace wideep::online
