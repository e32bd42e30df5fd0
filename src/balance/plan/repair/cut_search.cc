// SPDX-License-Identifier: Apache-2.0
//
// A trial changes the flow, settles it and takes the change back: exact, and much cheaper than a
// new flow, for only what no longer fits is sent along other paths. Candidates come from estimates
// and are few, in the order of what they could gain at most; a bound ends the trials when no later
// candidate can be better. Exchanges cost two copies and are tried only when a retarget removes
// less than half of the worst component's excess.
#include "plan/repair/cut_search.h"

#include <algorithm>

namespace wideep::balance {
namespace {

// More candidates save few moves: 8 experts and 16 slots are within 5 % of trying all pairs.
constexpr size_t kExperts = 8;
constexpr size_t kSlots = 16;
constexpr size_t kExchanges = 8;
constexpr double kMinGain = 1e-9;  // of the level: above rounding

size_t at(int32_t i) { return static_cast<size_t>(i); }

}  // namespace

CutSearch::CutSearch(const PlanShape& shape)
    : num_ranks_(shape.ep_size),
      slots_per_rank_(shape.slots_per_rank()),
      stuck_(at(num_ranks_)),
      component_(at(num_ranks_)) {
  for (int slot = 0; slot < shape.num_slots; ++slot) {
    usable_.push_back(slot % slots_per_rank_ < shape.usable_slots_of(slot / slots_per_rank_));
  }
  const size_t num_slots = usable_.size();
  queue_.reserve(at(num_ranks_));
  experts_.reserve(num_slots);
  slots_.reserve(num_slots);
  exchanges_.reserve(at(num_ranks_) * at(num_ranks_));
}

bool CutSearch::lower(ShareFlow& flow, double level, int max_moves) {
  flow_ = &flow;
  level_ = level;
  moves_ = 0;
  excess_ = flow.settle(level);
  while (excess_ > 0.0 && moves_ < max_moves) {
    if (!step(max_moves - moves_)) break;
  }
  return excess_ <= 0.0;
}

bool CutSearch::step(int budget) {
  // Trials settle the flow and so change its stuck ranks: the candidates need those of the present
  // placement.
  for (int rank = 0; rank < num_ranks_; ++rank) stuck_[at(rank)] = flow_->stuck(rank);
  find_component();
  flow_->save();
  Change change = best_retarget();
  const double gain = excess_ - change.excess;
  // An exchange costs two copies, so it must gain more than two retargets. If one retarget removes
  // half of the worst excess, two of them are as good as any exchange.
  if (budget >= 2 && gain < 0.5 * worst_excess_) {
    const Change exchange = best_exchange();
    if (excess_ - exchange.excess > 2.0 * gain) change = exchange;
  }
  if (change.slot < 0) return false;
  make(change);
  return true;
}

void CutSearch::make(const Change& change) {
  if (change.other < 0) {
    flow_->retarget(change.slot, change.expert);
    moves_ += 1;
  } else {
    flow_->exchange(change.slot, change.other);
    moves_ += 2;
  }
  excess_ = flow_->settle(level_);
}

// --- The component ------------------------------------------------------------------------------

void CutSearch::find_component() {
  std::fill(component_.begin(), component_.end(), -1);
  worst_excess_ = -1.0;
  int label = 0;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (!stuck_[at(rank)] || component_[at(rank)] >= 0) continue;
    const double excess = grow_component(rank, label);
    if (excess > worst_excess_) {
      worst_excess_ = excess;
      worst_ = label;
    }
    ++label;
  }
}

// Returns its excess.
double CutSearch::grow_component(int first_rank, int label) {
  double excess = 0.0;
  queue_.assign(1, first_rank);
  component_[at(first_rank)] = label;
  for (size_t i = 0; i < queue_.size(); ++i) {
    excess += flow_->rank_load(queue_[i]) - level_;
    const int first = queue_[i] * slots_per_rank_;
    for (int slot = first; slot < first + slots_per_rank_; ++slot) {
      if (flow_->single(slot) || !inside(slot)) continue;
      for (int s = flow_->next_slot(slot); s != slot; s = flow_->next_slot(s)) {
        int& component = component_[at(flow_->rank_of(s))];
        if (component >= 0) continue;
        component = label;
        queue_.push_back(flow_->rank_of(s));
      }
    }
  }
  return excess;
}

// True if all slots of the slot's expert are on stuck ranks, so that its load cannot leave them.
bool CutSearch::inside(int slot) const {
  int s = slot;
  do {
    if (!stuck_[at(flow_->rank_of(s))]) return false;
    s = flow_->next_slot(s);
  } while (s != slot);
  return true;
}

// --- Candidates ---------------------------------------------------------------------------------

void CutSearch::keep_best(std::vector<Candidate>& candidates, size_t count) {
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end(), [](const Candidate& x, const Candidate& y) {
                      if (x.score != y.score) return x.score > y.score;
                      return x.a != y.a ? x.a < y.a : x.b < y.b;
                    });
  candidates.resize(count);
}

// The heaviest experts of the component: they can take most load out.
void CutSearch::list_experts() {
  experts_.clear();
  for (int slot = 0; slot < num_ranks_ * slots_per_rank_; ++slot) {
    if (component_[at(flow_->rank_of(slot))] != worst_) continue;
    if (!flow_->used(slot) || !inside(slot) || !flow_->first_of_expert(slot)) continue;
    const int expert = flow_->expert(slot);
    experts_.push_back({flow_->expert_load(expert), expert, -1});
  }
  keep_best(experts_, kExperts);
}

bool CutSearch::may_take_expert(int slot) const {
  return flow_->used(slot) ? !flow_->single(slot) : usable_[at(slot)] != 0;
}

// Slots outside the stuck ranks, first those on ranks with most room that carry little: their load
// goes to other replicas and must find room there.
void CutSearch::list_slots() {
  slots_.clear();
  for (int slot = 0; slot < num_ranks_ * slots_per_rank_; ++slot) {
    const int rank = flow_->rank_of(slot);
    if (stuck_[at(rank)] || !may_take_expert(slot)) continue;
    slots_.push_back({level_ - flow_->rank_load(rank) - flow_->amount(slot), slot, -1});
  }
  keep_best(slots_, kSlots);
}

// For every pair of a hot and a cold rank the exchange that gains most, estimated as if the cold
// rank could not pass load on.
void CutSearch::list_exchanges() {
  exchanges_.clear();
  for (int hot = 0; hot < num_ranks_; ++hot) {
    if (component_[at(hot)] != worst_) continue;
    for (int cold = 0; cold < num_ranks_; ++cold) {
      if (!stuck_[at(cold)]) list_exchanges_between(hot, cold);
    }
  }
  keep_best(exchanges_, kExchanges);
}

void CutSearch::list_exchanges_between(int hot_rank, int cold_rank) {
  const double room = level_ - flow_->rank_load(cold_rank);
  const int hot_end = (hot_rank + 1) * slots_per_rank_;
  const int cold_end = (cold_rank + 1) * slots_per_rank_;
  Candidate best{kMinGain * level_, -1, -1};
  for (int hot = hot_end - slots_per_rank_; hot < hot_end; ++hot) {
    if (!flow_->used(hot) || !flow_->single(hot)) continue;
    for (int cold = cold_end - slots_per_rank_; cold < cold_end; ++cold) {
      if (!flow_->used(cold) || !flow_->single(cold)) continue;
      const double moved = flow_->amount(hot) - flow_->amount(cold);
      const double gain = std::min(moved, worst_excess_) - std::max(0.0, moved - room);
      if (gain > best.score) best = {gain, hot, cold};
    }
  }
  if (best.a >= 0) exchanges_.push_back(best);
}

// --- Trials -------------------------------------------------------------------------------------

// A lower bound of the excess after a retarget of the expert: all its load leaves the component.
double CutSearch::unavoidable(const Candidate& expert) const {
  return excess_ - std::min(worst_excess_, expert.score);
}

CutSearch::Change CutSearch::best_retarget() {
  // The first expert with a useful slot, in the order of load, fixes the slot; then the other
  // experts are tried in that slot. This takes about experts + slots trials, not their product.
  list_experts();
  list_slots();
  Change best{excess_ - kMinGain * level_};
  for (const Candidate& expert : experts_) {
    try_slots(expert.a, unavoidable(expert), &best);
    if (best.slot >= 0) break;
  }
  if (best.slot >= 0) try_experts(&best);
  return best;
}

void CutSearch::try_slots(int32_t expert, double enough, Change* best) {
  for (const Candidate& slot : slots_) {
    if (!try_retarget(slot.a, expert, best)) continue;
    // No other slot can do better for this expert.
    if (best->excess <= enough + kMinGain * level_) return;
  }
}

// Tries the other experts in the best slot so far. They are sorted by load, so it stops when no
// later one can do better.
void CutSearch::try_experts(Change* best) {
  for (const Candidate& expert : experts_) {
    if (unavoidable(expert) >= best->excess - kMinGain * level_) return;
    try_retarget(best->slot, expert.a, best);
  }
}

// True: it is the best so far.
bool CutSearch::try_retarget(int slot, int expert, Change* best) {
  if (flow_->holds(flow_->rank_of(slot), expert)) return false;
  const int before = flow_->expert(slot);
  flow_->retarget(slot, expert);
  const double excess = flow_->settle(level_);
  flow_->retarget(slot, before);
  flow_->restore();
  if (excess >= best->excess) return false;
  *best = {excess, slot, expert, -1};
  return true;
}

CutSearch::Change CutSearch::best_exchange() {
  list_exchanges();
  Change best{excess_ - kMinGain * level_};
  for (const Candidate& exchange : exchanges_) {
    flow_->exchange(exchange.a, exchange.b);
    const double excess = flow_->settle(level_);
    flow_->exchange(exchange.a, exchange.b);
    flow_->restore();
    if (excess < best.excess) best = {excess, exchange.a, -1, exchange.b};
  }
  return best;
}

}  // namespace wideep::balance
