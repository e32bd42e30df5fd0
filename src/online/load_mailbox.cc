// SPDX-License-Identifier: Apache-2.0
#include "online/load_mailbox.h"

#include <algorithm>
#include <utility>

namespace wideep::online {

void LoadMailbox::end_iteration(int64_t iteration) {
  if (filling_.num_iterations++ == 0) filling_.first_iteration = iteration;
  if (full_.load(std::memory_order_acquire)) return;
  std::swap(filling_, handed_);
  full_.store(true, std::memory_order_release);
}

void LoadMailbox::done() {
  handed_.num_iterations = 0;
  std::fill(handed_.tokens.begin(), handed_.tokens.end(), 0);
  full_.store(false, std::memory_order_release);
}

}  // namespace wideep::online
