// SPDX-License-Identifier: Apache-2.0
#include "plan/search/ring.h"

#include <numeric>

namespace wideep::balance::search {
namespace {

// The walk over the ranks: every lap visits all of them, each lap with its own stride.
class Walk {
 public:
  explicit Walk(int num_ranks) : num_ranks_(num_ranks) {}
  int rank() const { return rank_; }
  void step() {
    if (rank_ == 0 && started_) next_lap();
    started_ = true;
    rank_ += stride_;
    if (rank_ >= num_ranks_) rank_ -= num_ranks_;
  }

 private:
  // A stride without a common divisor visits every rank once per lap.
  void next_lap() {
    do {
      stride_ = stride_ % num_ranks_ + 1;
    } while (std::gcd(stride_, num_ranks_) != 1);
  }

  int num_ranks_;
  int rank_ = 0;
  int stride_ = 1;
  bool started_ = false;
};

bool put_replica(Board& board, int rank, int expert) {
  if (board.filled[static_cast<size_t>(rank)] == board.slots_per_rank) return false;
  if (board.holds(rank, expert)) return false;
  board.put(rank, expert);
  return true;
}

// The walk does not step before the first replica: the expert starts on the rank where the last one
// ended, and so joins the two.
bool place_on_walk(Board& board, int expert, Walk& walk) {
  for (int i = 0; i < board.replicas[static_cast<size_t>(expert)]; ++i) {
    if (i > 0) walk.step();
    if (!put_replica(board, walk.rank(), expert)) return false;
  }
  board.placed[static_cast<size_t>(expert)] = 1;
  return true;
}

}  // namespace

bool place_ring(Board& board, int num_replicated) {
  Walk walk(board.num_ranks);
  const auto expert = [&](int i) {
    return static_cast<int>(board.experts_by_load[static_cast<size_t>(i)] & board.expert_mask);
  };
  // Heaviest, lightest, second heaviest, second lightest, …: see ring.h.
  for (int low = 0, high = num_replicated; low < high;) {
    if (!place_on_walk(board, expert(low++), walk)) return false;
    if (low < high && !place_on_walk(board, expert(--high), walk)) return false;
  }
  // Swaps must not break the ring.
  board.pinned = board.filled;
  return true;
}

}  // namespace wideep::balance::search
