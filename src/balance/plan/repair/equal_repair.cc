// SPDX-License-Identifier: Apache-2.0
//
// The planner's board and swaps do the work, on float32. A trial placement goes to the board, is
// improved there within the moves that are left, and is read back; it is kept if the maximum fell
// by more than rounding. The moves of a step are counted against the placement before all steps,
// so moves that cancel each other are free.
#include "plan/repair/equal_repair.h"

#include <algorithm>
#include <limits>

#include "plan/moves.h"

namespace wideep::balance {
namespace {

// A step must lower the imbalance ratio by more than this, or its moves are not made.
constexpr float kMinGain = 1e-5f;
constexpr int kMaxRounds = 100;

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

EqualRepair::EqualRepair(const PlanShape& shape)
    : board_(shape.num_experts, shape.ep_size, shape.slots_per_rank()),
      search_(search::best_search()) {
  if (!shape.rank_slots.empty()) board_.capacity = shape.rank_slots;
}

void EqualRepair::run(std::span<const double> load, const Placement& from, double tolerance,
                      int max_moves, Placement* to) {
  board_.set_load(load);
  approach(from, static_cast<float>(tolerance), max_moves);
  *to = best_;
  const float reached = best_imbalance_;
  if (reached <= static_cast<float>(tolerance)) return;
  const int moves = count_moves(from, best_);
  approach(from, reached, max_moves);
  if (best_imbalance_ <= reached && count_moves(from, best_) < moves) *to = best_;
}

// Sets best_ and best_imbalance_. The steps in the order of their cost: free slots take no replica
// away, swaps keep the replica counts, and only then a replica replaces another one.
void EqualRepair::approach(const Placement& from, float tolerance, int max_moves) {
  goal_ = {tolerance, kMaxRounds, 0};
  best_ = from;
  trial_ = from;
  fill_board(best_);
  best_imbalance_ = imbalance();
  bool helps = max_moves > 0;
  while (helps && best_imbalance_ > tolerance) {
    const int budget = max_moves - count_moves(from, best_);
    helps = fill_free_slots(budget) || swap(budget) || add_replica(budget);
  }
}

// Each step (swap, fill_free_slots, add_replica) needs best_ on the board, and leaves it there.
bool EqualRepair::swap(int budget) {
  goal_.max_swaps = budget / 2;
  search_.improve(board_, goal_);
  read_board(&trial_);
  return keep_if_better();
}

bool EqualRepair::fill_free_slots(int budget) {
  trial_ = best_;
  int filled = 0;
  for (; filled < budget && imbalance() > goal_.tolerance; ++filled) {
    // Each new replica lightens the expert's other replicas, so all loads are computed again.
    const int slot = free_slot_of_coldest_rank();
    const int32_t expert = slot < 0 ? -1 : heaviest_expert_missing_on(trial_.rank_of_slot(slot));
    if (expert < 0) break;
    trial_.slot_to_expert[at(slot)] = expert;
    fill_board(trial_);
  }
  if (filled == 0) return false;
  goal_.max_swaps = (budget - filled) / 2;
  search_.improve(board_, goal_);
  read_board(&trial_);
  return keep_if_better();
}

// −1: none.
int EqualRepair::free_slot_of_coldest_rank() const {
  int best = -1;
  for (int slot = 0; slot < trial_.num_slots(); ++slot) {
    const int rank = trial_.rank_of_slot(slot);
    const bool usable = slot % trial_.slots_per_rank() < board_.capacity[at(rank)];
    if (!usable || trial_.slot_to_expert[at(slot)] != kUnusedSlot) continue;
    if (best >= 0 && board_.rank_load[at(trial_.rank_of_slot(best))] <= board_.rank_load[at(rank)])
      continue;
    best = slot;
  }
  return best;
}

// By the load of one replica; −1: none.
int32_t EqualRepair::heaviest_expert_missing_on(int rank) const {
  int32_t best = -1;
  float max = -1.0f;
  for (int32_t e = 0; e < board_.num_experts; ++e) {
    const float part = board_.load[at(e)] / static_cast<float>(board_.replicas[at(e)]);
    if (part <= max || board_.holds(rank, e)) continue;
    best = e;
    max = part;
  }
  return best;
}

bool EqualRepair::add_replica(int budget) {
  if (budget < 1) return false;
  const int32_t expert = heaviest_expert(hottest_rank());
  const int slot = slot_to_spare(expert);
  if (slot < 0) return false;
  trial_ = best_;
  trial_.slot_to_expert[at(slot)] = expert;
  fill_board(trial_);
  // A swap moves two experts; the new replica has taken one move.
  goal_.max_swaps = (budget - 1) / 2;
  search_.improve(board_, goal_);
  read_board(&trial_);
  return keep_if_better();
}

bool EqualRepair::keep_if_better() {
  const float reached = imbalance();
  if (reached < best_imbalance_ - kMinGain) {
    std::swap(best_, trial_);
    best_imbalance_ = reached;
    return true;
  }
  fill_board(best_);
  return false;
}

void EqualRepair::fill_board(const Placement& placement) {
  std::fill(board_.replicas.begin(), board_.replicas.end(), 0);
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) ++board_.replicas[at(expert)];
  }
  board_.clear_slots();
  int slot = 0;
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    for (int i = 0; i < placement.slots_per_rank(); ++i, ++slot) {
      const int32_t expert = placement.slot_to_expert[at(slot)];
      if (expert != kUnusedSlot) board_.put(rank, expert);
    }
  }
}

void EqualRepair::read_board(Placement* placement) const {
  auto to = placement->slot_to_expert.begin();
  for (int rank = 0; rank < board_.num_ranks; ++rank) {
    const int filled = board_.filled[at(rank)];
    to = std::copy_n(board_.experts_of(rank), filled, to);
    to = std::fill_n(to, board_.slots_per_rank - filled, kUnusedSlot);
  }
}

float EqualRepair::imbalance() const {
  return board_.max_rank_load() / board_.mean_rank_load() - 1.0f;
}

int EqualRepair::hottest_rank() const {
  const auto first = board_.rank_load.begin();
  return static_cast<int>(std::max_element(first, first + board_.num_ranks) - first);
}

int32_t EqualRepair::heaviest_expert(int rank) const {
  const int32_t* experts = board_.experts_of(rank);
  const auto part = [&](int32_t e) {
    return board_.load[at(e)] / static_cast<float>(board_.replicas[at(e)]);
  };
  return *std::max_element(experts, experts + board_.filled[at(rank)],
                           [&](int32_t a, int32_t b) { return part(a) < part(b); });
}

// The slot whose expert's other replicas stay lightest without it, on a rank without `expert`;
// −1: none.
int EqualRepair::slot_to_spare(int32_t expert) const {
  int best = -1;
  float min = std::numeric_limits<float>::infinity();
  for (int slot = 0; slot < best_.num_slots(); ++slot) {
    const int32_t other = best_.slot_to_expert[at(slot)];
    if (other == kUnusedSlot) continue;
    const int32_t replicas = board_.replicas[at(other)];
    if (replicas < 2 || other == expert) continue;
    const float part = board_.load[at(other)] / static_cast<float>(replicas - 1);
    if (part >= min || board_.holds(best_.rank_of_slot(slot), expert)) continue;
    min = part;
    best = slot;
  }
  return best;
}

}  // namespace wideep::balance
