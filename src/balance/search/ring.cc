// SPDX-License-Identifier: Apache-2.0
#include "balance/search/ring.h"

#include <numeric>

namespace wideep::balance::search {
namespace {

// The walk over the ranks: every lap visits all of them, each lap with its own stride.
class Walk {
 public:
  explicit Walk(int num_ranks) : num_ranks_(num_ranks) {}
  int rank() const { return rank_; }
  void step() {
    rank_ = (rank_ + stride_) % num_ranks_;
    if (rank_ == 0) next_lap();
  }

 private:
  void next_lap() {
    do {
      stride_ = stride_ % num_ranks_ + 1;
    } while (std::gcd(stride_, num_ranks_) != 1);
  }

  int num_ranks_;
  int rank_ = 0;
  int stride_ = 1;
};

bool put_replica(Board& board, int rank, int expert) {
  if (board.filled[static_cast<size_t>(rank)] == board.slots_per_rank) return false;
  if (board.holds(rank, expert)) return false;
  board.put(rank, expert);
  return true;
}

}  // namespace

bool lay_ring(Board& board) {
  Walk walk(board.num_ranks);
  for (int expert = 0; expert < board.num_experts; ++expert) {
    const int replicas = board.replicas[static_cast<size_t>(expert)];
    if (replicas == 1) continue;
    for (int i = 0; i < replicas; ++i) {
      if (i > 0) walk.step();
      if (!put_replica(board, walk.rank(), expert)) return false;
    }
    board.placed[static_cast<size_t>(expert)] = 1;
  }
  board.pinned = board.filled;
  return true;
}

}  // namespace wideep::balance::search
