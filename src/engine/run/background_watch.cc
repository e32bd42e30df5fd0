// SPDX-License-Identifier: Apache-2.0
#include "run/background_watch.h"

#include <algorithm>

namespace wideep::run {

std::optional<BackgroundSilence> BackgroundWatch::look(int64_t now_ns, int num_ranks) {
  constexpr int64_t kMaxBetweenLooks = 1'000'000'000;
  if (stages_.empty()) return std::nullopt;
  if (threads_.empty()) list_threads(now_ns, num_ranks);
  if (next_ == threads_.size()) {
    if (now_ns - looked_ns_ < std::min(limit_ns_ / 4, kMaxBetweenLooks)) return std::nullopt;
    looked_ns_ = now_ns;
    next_ = 0;
  }
  while (next_ < threads_.size()) {
    if (const auto change = look_at(threads_[next_++], now_ns)) return change;
  }
  return std::nullopt;
}

void BackgroundWatch::list_threads(int64_t now_ns, int num_ranks) {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (!stages_[stage].balances()) continue;
    for (int rank = -1; rank < num_ranks; ++rank) {
      Thread& thread = threads_.emplace_back();
      thread = {.stage = static_cast<int>(stage), .rank = rank, .changed_ns = now_ns};
      thread.heartbeat = heartbeat_of(thread);
    }
  }
  next_ = threads_.size();
  looked_ns_ = now_ns;
}

int64_t BackgroundWatch::heartbeat_of(const Thread& thread) const {
  const online::UpdateBoard& board = *stages_[static_cast<size_t>(thread.stage)].board;
  return thread.rank < 0 ? board.balancer().heartbeat_ns : board.updater(thread.rank).heartbeat_ns;
}

std::optional<BackgroundSilence> BackgroundWatch::look_at(Thread& thread, int64_t now_ns) {
  const int64_t heartbeat = heartbeat_of(thread);
  const int64_t silent_ns = now_ns - thread.changed_ns;
  const BackgroundSilence change{.stage = thread.stage,
                                 .rank = thread.rank,
                                 .is_over = thread.is_silent,
                                 .seconds = 1e-9 * static_cast<double>(silent_ns)};
  if (heartbeat != thread.heartbeat) {
    thread.heartbeat = heartbeat;
    thread.changed_ns = now_ns;
    const bool was_silent = thread.is_silent;
    thread.is_silent = false;
    return was_silent ? std::optional(change) : std::nullopt;
  }
  if (thread.is_silent || silent_ns < limit_ns_) return std::nullopt;
  thread.is_silent = true;
  return change;
}

}  // namespace wideep::run
