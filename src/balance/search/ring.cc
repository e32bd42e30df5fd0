// SPDX-License-Identifier: Apache-2.0
#include "balance/search/ring.h"

#include <algorithm>
#include <numeric>
#include <span>

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

// Heaviest first.
std::span<const int32_t> replicated_experts(Board& board) {
  auto end = board.order.begin();
  for (int expert = 0; expert < board.num_experts; ++expert) {
    if (board.replicas[static_cast<size_t>(expert)] > 1) *end++ = expert;
  }
  std::sort(board.order.begin(), end, [&](int32_t a, int32_t b) {
    const float load_a = board.load[static_cast<size_t>(a)];
    const float load_b = board.load[static_cast<size_t>(b)];
    return load_a != load_b ? load_a > load_b : a < b;
  });
  return {board.order.begin(), end};
}

bool lay_expert(Board& board, int expert, Walk& walk) {
  for (int i = 0; i < board.replicas[static_cast<size_t>(expert)]; ++i) {
    if (i > 0) walk.step();
    if (!put_replica(board, walk.rank(), expert)) return false;
  }
  board.placed[static_cast<size_t>(expert)] = 1;
  return true;
}

}  // namespace

bool lay_ring(Board& board) {
  Walk walk(board.num_ranks);
  const auto experts = replicated_experts(board);
  for (size_t low = 0, high = experts.size(); low < high;) {
    if (!lay_expert(board, experts[low++], walk)) return false;
    if (low < high && !lay_expert(board, experts[--high], walk)) return false;
  }
  board.pinned = board.filled;
  return true;
}

}  // namespace wideep::balance::search
