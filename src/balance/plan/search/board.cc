// SPDX-License-Identifier: Apache-2.0
//
// The greedy starts, and the separation of replicas after rounds. Ranks wait in a heap by their
// score, which only changes for the rank that got the expert, so no entry is ever stale. Ranks
// that hold the expert already are popped and put back; this is rare, for few experts have
// replicas.
#include "plan/search/board.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

namespace wideep::balance::search {
namespace {

constexpr float kEmpty = std::numeric_limits<float>::infinity();
constexpr double kMinLoad = 1e-6;  // of the mean expert load

uint32_t id_mask(int count) { return std::bit_ceil(static_cast<uint32_t>(count)) - 1; }
size_t size(int count) { return static_cast<size_t>(count); }

float replica_load(const Board& board, int expert) {
  return board.load[size(expert)] / static_cast<float>(board.replicas[size(expert)]);
}

// Ranks with a free slot, the least score on top (ties: lower index). A score changes only when its
// rank gets an expert, so the heap needs no other updates.
template <typename Score>
class RankQueue {
 public:
  RankQueue(Board& board, Score score) : board_(board), heap_(board.queue), score_(score) {
    heap_.clear();
    for (int rank = 0; rank < board.num_ranks; ++rank) push(rank);
  }

  // Puts the expert on the best rank that lacks it; on the best of all if there is no such rank.
  // Pops ranks until one lacks the expert, then pushes the others back.
  void put(int expert) {
    auto end = heap_.end();  // [end, heap_.end()): popped ranks, the best one last
    // An expert with one replica cannot be on a rank already: no look-up needed.
    do {
      std::pop_heap(heap_.begin(), end--, std::greater<>());
    } while (board_.replicas[size(expert)] > 1 && end != heap_.begin() &&
             board_.holds(end->second, expert));
    const bool lacks = board_.replicas[size(expert)] == 1 || !board_.holds(end->second, expert);
    const auto chosen = lacks ? end : heap_.end() - 1;
    const int rank = chosen->second;
    board_.put(rank, expert);
    *chosen = heap_.back();
    const auto rest = heap_.end() - 1;
    while (end != rest) std::push_heap(heap_.begin(), ++end, std::greater<>());
    heap_.pop_back();
    push(rank);
  }

 private:
  void push(int rank) {
    if (board_.filled[size(rank)] == board_.capacity[size(rank)]) return;
    heap_.emplace_back(score_(rank), rank);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  Board& board_;
  std::vector<std::pair<float, int32_t>>& heap_;
  Score score_;
};

template <typename Score>
void fill_heaviest_first(Board& board, Score score) {
  std::iota(board.order.begin(), board.order.end(), 0);
  std::sort(board.order.begin(), board.order.end(), [&](int32_t a, int32_t b) {
    const float load_a = replica_load(board, a), load_b = replica_load(board, b);
    return load_a != load_b ? load_a > load_b : a < b;
  });
  RankQueue queue(board, score);
  for (int32_t expert : board.order) {
    for (int i = 0; i < board.replicas[size(expert)]; ++i) queue.put(expert);
  }
}

// A slot of `rank` whose expert is also in an earlier slot of it; -1: none.
int repeated_slot(const Board& board, int rank) {
  const int32_t* experts = board.experts_of(rank);
  for (int i = 1; i < board.filled[size(rank)]; ++i) {
    if (board.replicas[size(experts[i])] == 1) continue;
    if (std::find(experts, experts + i, experts[i]) != experts + i) return i;
  }
  return -1;
}

void exchange(Board& board, int a, int slot_a, int b, int slot_b) {
  float &load_a = board.slots_of(a)[slot_a], &load_b = board.slots_of(b)[slot_b];
  const float moved = load_a - load_b;
  std::swap(load_a, load_b);
  std::swap(board.experts_of(a)[slot_a], board.experts_of(b)[slot_b]);
  board.rank_load[size(a)] -= moved;
  board.rank_load[size(b)] += moved;
}

// The heavier of the two ranks after an exchange.
float max_after(Board& board, int a, int slot_a, int b, int slot_b) {
  const float moved = board.slots_of(a)[slot_a] - board.slots_of(b)[slot_b];
  return std::max(board.rank_load[size(a)] - moved, board.rank_load[size(b)] + moved);
}

// Exchanges the slot with one of a rank that lacks its expert and has an expert that `rank` lacks,
// such that the heavier of both is lightest; the first one that makes neither heavier than the
// heavier was is good enough. False: there is none.
bool send_away(Board& board, int rank, int slot) {
  int best_rank = -1, best_slot = -1;
  float min = std::numeric_limits<float>::infinity();
  const auto good_enough = [&] {
    return best_rank >= 0 &&
           min <= std::max(board.rank_load[size(rank)], board.rank_load[size(best_rank)]);
  };
  for (int other = 0; other < board.num_ranks && !good_enough(); ++other) {
    if (board.holds(other, board.experts_of(rank)[slot])) continue;
    for (int i = 0; i < board.filled[size(other)]; ++i) {
      const float max = max_after(board, rank, slot, other, i);
      if (max >= min || board.holds(rank, board.experts_of(other)[i])) continue;
      min = max;
      best_rank = other;
      best_slot = i;
    }
  }
  if (best_rank >= 0) exchange(board, rank, slot, best_rank, best_slot);
  return best_rank >= 0;
}

}  // namespace

int padded_for_sort(int count) {
  return std::max(kLanes, static_cast<int>(std::bit_ceil(static_cast<uint32_t>(count))));
}

Board::Board(int experts, int ranks, int slots)
    : num_experts(experts),
      num_ranks(ranks),
      slots_per_rank(slots),
      row(padded(slots)),
      load(size(padded_for_sort(experts)), 0.0f),
      replicas(load.size(), 1),
      slot_load(size(ranks) * size(row), kEmpty),
      slot_expert(slot_load.size(), -1),
      rank_load(size(padded_for_sort(ranks)), kEmpty),
      filled(size(ranks), 0),
      capacity(size(ranks), slots),
      placed(load.size(), 0),
      pinned(size(ranks), 0),
      order(size(experts), 0),
      queue(size(ranks)),  // not reserved: copies of the board must have it too
      waiting(size(ranks) * size(slots), 0),
      experts_by_load(load.size(), 0),
      ranks_by_load(rank_load.size(), 0),
      expert_mask(id_mask(padded_for_sort(experts))),
      rank_mask(id_mask(padded_for_sort(ranks))) {}

bool Board::holds(int rank, int expert) const {
  const int32_t* experts = experts_of(rank);
  const int32_t* end = experts + filled[size(rank)];
  return std::find(experts, end, expert) != end;
}

void Board::set_load(std::span<const double> tokens) {
  const double sum = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const double scale = sum > 0.0 ? static_cast<double>(tokens.size()) / sum : 0.0;
  const double floor = sum > 0.0 ? kMinLoad : 1.0;
  for (size_t e = 0; e < tokens.size(); ++e) {
    load[e] = static_cast<float>(std::max(tokens[e] * scale, floor));
  }
}

void Board::clear_slots() {
  std::fill(slot_load.begin(), slot_load.end(), kEmpty);
  std::fill_n(rank_load.begin(), num_ranks, 0.0f);
  std::fill(filled.begin(), filled.end(), 0);
  std::fill(placed.begin(), placed.end(), 0);
  std::fill(pinned.begin(), pinned.end(), 0);
}

void fill_lightest_first(Board& board) {
  fill_heaviest_first(board, [&](int r) { return board.rank_load[size(r)]; });
}

void fill_neediest_first(Board& board) {
  const float mean = board.mean_rank_load();
  fill_heaviest_first(board, [&](int r) {
    const int free = board.capacity[size(r)] - board.filled[size(r)];
    return (board.rank_load[size(r)] - mean) / static_cast<float>(free);
  });
}

// A pass per rank is enough: send_away() never gives a rank an expert that it holds already.
bool separate_replicas(Board& board) {
  bool separate = true;
  for (int rank = 0; rank < board.num_ranks; ++rank) {
    bool sent = true;
    for (int slot = repeated_slot(board, rank); slot >= 0 && sent;
         slot = repeated_slot(board, rank)) {
      sent = send_away(board, rank, slot);
    }
    separate &= sent;
  }
  return separate;
}

float Board::max_rank_load() const {
  return *std::max_element(rank_load.begin(), rank_load.begin() + num_ranks);
}

}  // namespace wideep::balance::search
