// SPDX-License-Identifier: Apache-2.0
//
// A step lists candidates, evaluates the most promising ones exactly, and makes the best:
//
//   examine    the shares and hot ranks of every sample for the present placement
//   list       stuck experts; slots that they could take; pairs of slots to exchange
//   make_best  each candidate on a trial placement, by a re-split of every sample
//
// An exact evaluation is a re-split per sample and costs a thousand times as much as an entry of a
// list. So candidates carry two figures: `bound`, which is never too low and rules them out, and
// `score`, an estimate that only orders them. The search counts its work in steps, not in time, or
// two machines would make different plans.
#include "online/move_search.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace wideep::online {
namespace {

using balance::kUnusedSlot;
using balance::Placement;

// Imbalance above which a step tries all that is listed before it ends the search.
constexpr double kLarge = 0.02;

// Nanoseconds of one pair of slots and one sample in list_exchanges(), and of one entry of the
// other lists.
constexpr double kPairWork = 4.0;
constexpr double kEntryWork = 2.0;

template <typename Candidate>
void apply(const Candidate& change, Placement* placement) {
  std::vector<int32_t>& experts = placement->slot_to_expert;
  if (change.expert >= 0) {
    experts[static_cast<size_t>(change.slot)] = change.expert;
  } else {
    std::swap(experts[static_cast<size_t>(change.slot)],
              experts[static_cast<size_t>(change.other)]);
  }
}

}  // namespace

MoveSearch::MoveSearch(const balance::PlanShape& shape, PlacementJudge* judge,
                       const SearchEffort& effort)
    : shape_(shape),
      effort_(effort),
      judge_(judge),
      replicas_(static_cast<size_t>(shape.num_experts)),
      holds_(static_cast<size_t>(shape.ep_size) * replicas_.size()),
      outside_(replicas_.size()),
      stuck_(replicas_.size()),
      max_(replicas_.size()),
      slot_load_(static_cast<size_t>(shape.num_slots)) {}

bool MoveSearch::usable(int slot) const {
  const int per_rank = shape_.slots_per_rank();
  return slot % per_rank < shape_.usable_slots_of(slot / per_rank);
}

bool MoveSearch::holds(int rank, int32_t expert) const {
  return holds_[static_cast<size_t>(rank) * replicas_.size() + static_cast<size_t>(expert)] != 0;
}

void MoveSearch::count_holders(const Placement& placement) {
  std::fill(replicas_.begin(), replicas_.end(), 0);
  std::fill(holds_.begin(), holds_.end(), 0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert == kUnusedSlot) continue;
    ++replicas_[static_cast<size_t>(expert)];
    holds_[static_cast<size_t>(placement.rank_of_slot(slot)) * replicas_.size() +
           static_cast<size_t>(expert)] = 1;
  }
}

void MoveSearch::find_stuck(const SampleSet& samples, const Placement& placement) {
  const size_t experts = replicas_.size();
  leaves_.assign(state_.size() * experts, 0.0);
  for (auto& each : stuck_) each.clear();
  std::fill(max_.begin(), max_.end(), 0.0);
  for (size_t i = 0; i < state_.size(); ++i) {
    const PlacementJudge::Sample& sample = state_[i];
    if (sample.num_hot == 0) continue;
    std::fill(outside_.begin(), outside_.end(), 0);
    for (int slot = 0; slot < placement.num_slots(); ++slot) {
      const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
      if (expert == kUnusedSlot || is_hot(i, placement.rank_of_slot(slot))) continue;
      outside_[static_cast<size_t>(expert)] = 1;
    }
    const std::span<const double> load = samples.load(static_cast<int>(i));
    for (size_t e = 0; e < experts; ++e) {
      if (outside_[e] != 0 || replicas_[e] == 0 || load[e] == 0.0) continue;
      leaves_[i * experts + e] = load[e];
      const double gain = samples.weight(static_cast<int>(i)) *
                          std::min(load[e] / sample.num_hot, sample.imbalance);
      stuck_[e].push_back({static_cast<int>(i), gain});
      max_[e] += gain;
    }
  }
  stuck_experts_.clear();
  for (size_t e = 0; e < experts; ++e) {
    if (!stuck_[e].empty()) stuck_experts_.push_back(static_cast<int32_t>(e));
  }
  std::sort(stuck_experts_.begin(), stuck_experts_.end(), [this](int32_t a, int32_t b) {
    const double max_a = max_[static_cast<size_t>(a)], max_b = max_[static_cast<size_t>(b)];
    return max_a != max_b ? max_a > max_b : a < b;
  });
  work_ += kEntryWork * static_cast<double>(state_.size()) * placement.num_slots();
}

void MoveSearch::measure_slots(const SampleSet& samples, const Placement& placement) {
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const auto index = static_cast<size_t>(slot);
    const int32_t expert = placement.slot_to_expert[index];
    double load = 0.0;
    for (size_t i = 0; expert != kUnusedSlot && i < state_.size(); ++i) {
      load += samples.weight(static_cast<int>(i)) * state_[i].shares[index] *
              samples.load(static_cast<int>(i))[static_cast<size_t>(expert)];
    }
    slot_load_[index] = load;
  }
  work_ += kEntryWork * static_cast<double>(state_.size()) * placement.num_slots();
}

// Ties go to the lower slot: the standard does not fix the order of equal elements, and equal input
// must give equal plans.
bool MoveSearch::is_better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return std::pair(a.slot, a.expert + a.other) < std::pair(b.slot, b.expert + b.other);
}

// Of the candidates from `begin` on.
void MoveSearch::keep_best(size_t begin, size_t max) {
  if (candidates_.size() - begin <= max) return;
  const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = first + static_cast<std::ptrdiff_t>(max);
  std::nth_element(first, last, candidates_.end(), is_better);
  candidates_.erase(last, candidates_.end());
}

void MoveSearch::list_retargets(const Placement& placement, double price) {
  const size_t begin = candidates_.size();
  for (const int32_t expert : stuck_experts_) {
    const auto index = static_cast<size_t>(expert);
    if (max_[index] <= price || (candidates_.size() > begin && out_of_time())) break;
    const size_t of_expert = candidates_.size();
    for (int rank = 0; rank < shape_.ep_size; ++rank) {
      if (holds(rank, expert)) continue;
      double gain = max_[index];
      for (const Stuck& stuck : stuck_[index]) {
        if (is_hot(static_cast<size_t>(stuck.sample), rank)) gain -= stuck.gain;
      }
      if (gain > price) add_retargets(expert, rank, gain, placement);
    }
    work_ += kEntryWork * static_cast<double>(stuck_[index].size() + 4) * shape_.ep_size;
    keep_best(of_expert, effort_.listed_of_expert);
  }
  keep_best(begin, effort_.listed);
}

// All of the rank's slots that can be spared, or the one that is missed least.
void MoveSearch::add_retargets(int32_t expert, int rank, double gain, const Placement& placement) {
  const int per_rank = shape_.slots_per_rank();
  const auto add = [&](int slot) {
    // Others must take over the slot's load, which costs a part of the gain.
    const double lost = slot_load_[static_cast<size_t>(slot)] / 2.0;
    candidates_.push_back({gain - std::min(gain, lost) / 2.0, gain, 0.0, slot, expert, -1});
  };
  int best = -1;
  for (int slot = rank * per_rank; slot < (rank + 1) * per_rank; ++slot) {
    const int32_t present = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (!usable(slot)) continue;
    if (present != kUnusedSlot && replicas_[static_cast<size_t>(present)] < 2) continue;
    if (effort_.all_slots) {
      add(slot);
    } else if (best < 0 ||
               slot_load_[static_cast<size_t>(slot)] < slot_load_[static_cast<size_t>(best)]) {
      best = slot;
    }
  }
  if (best >= 0) add(best);
}

void MoveSearch::add_exchange(const SampleSet& samples, int slot, int other,
                              const Placement& placement, double price) {
  const int rank_a = placement.rank_of_slot(slot), rank_b = placement.rank_of_slot(other);
  const auto a = static_cast<size_t>(placement.slot_to_expert[static_cast<size_t>(slot)]);
  const auto b = static_cast<size_t>(placement.slot_to_expert[static_cast<size_t>(other)]);
  const size_t experts = replicas_.size();
  double bound = 0.0, alone = 0.0;
  for (size_t i = 0; i < state_.size(); ++i) {
    const PlacementJudge::Sample& sample = state_[i];
    if (sample.num_hot == 0) continue;
    const bool hot_a = is_hot(i, rank_a), hot_b = is_hot(i, rank_b);
    if (hot_a == hot_b) continue;
    const std::span<const double> load = samples.load(static_cast<int>(i));
    const double* leaves = leaves_.data() + i * experts;
    // The load that leaves the hot ranks minus the load that comes to them. The bound must not be
    // too low, so an expert with other replicas is taken to bring nothing.
    const double net = hot_a ? leaves[a] - (replicas_[b] > 1 ? 0.0 : load[b])
                             : leaves[b] - (replicas_[a] > 1 ? 0.0 : load[a]);
    const double gain = std::min(net / sample.num_hot, sample.imbalance);
    const double weight = samples.weight(static_cast<int>(i));
    bound += weight * gain;
    // What is gained if no shares pass on what comes to the cool rank.
    const double cool = sample.rank_load[static_cast<size_t>(hot_a ? rank_b : rank_a)];
    alone += weight * std::min(gain, 1.0 + sample.imbalance - (cool + net));
  }
  bound /= 2.0;  // per move: an exchange makes two
  if (bound <= price) return;
  candidates_.push_back({(bound + std::max(0.0, alone / 2.0)) / 2.0, bound, 0.0,
                         static_cast<int32_t>(slot), -1, static_cast<int32_t>(other)});
}

void MoveSearch::list_exchanges(const SampleSet& samples, const Placement& placement,
                                double price) {
  const size_t begin = candidates_.size();
  // Slots whose expert is stuck somewhere, the most promising first.
  order_.clear();
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert != kUnusedSlot && max_[static_cast<size_t>(expert)] > 0.0) order_.push_back(slot);
  }
  const auto max_at = [&](int slot) {
    return max_[static_cast<size_t>(placement.slot_to_expert[static_cast<size_t>(slot)])];
  };
  const size_t max_slots = std::min(order_.size(), effort_.exchanged);
  std::partial_sort(
      order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(max_slots), order_.end(),
      [&](int a, int b) { return max_at(a) != max_at(b) ? max_at(a) > max_at(b) : a < b; });
  order_.resize(max_slots);
  double min = price;  // what a score must exceed to be kept
  for (const int slot : order_) {
    const double max = max_at(slot);
    if (max <= min) break;  // the other slot's part is at most as much
    if (!candidates_.empty() && out_of_time()) break;
    const int32_t a = placement.slot_to_expert[static_cast<size_t>(slot)];
    const int rank_a = placement.rank_of_slot(slot);
    int pairs = 0;
    for (int other = 0; other < placement.num_slots(); ++other) {
      const int32_t b = placement.slot_to_expert[static_cast<size_t>(other)];
      const int rank_b = placement.rank_of_slot(other);
      if (b == kUnusedSlot || rank_b == rank_a) continue;
      const double max_b = max_[static_cast<size_t>(b)];
      if ((max + max_b) / 2.0 <= min) continue;
      // A pair of two such slots is met from the more promising one.
      if (max_b > max || (max_b == max && other < slot)) continue;
      if (holds(rank_a, b) || holds(rank_b, a)) continue;
      add_exchange(samples, slot, other, placement, price);
      ++pairs;
    }
    work_ +=
        kEntryWork * placement.num_slots() + kPairWork * pairs * static_cast<double>(state_.size());
    if (candidates_.size() - begin > effort_.listed) {
      keep_best(begin, effort_.listed);
      const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(begin);
      min = std::max(price, std::max_element(first, candidates_.end(), is_better)->score);
    }
  }
}

void MoveSearch::list(const SampleSet& samples, const SearchGoal& goal,
                      const Placement& placement) {
  count_holders(placement);
  find_stuck(samples, placement);
  measure_slots(samples, placement);
  candidates_.clear();
  list_retargets(placement, goal.price);
  list_exchanges(samples, placement, goal.price);
  std::sort(candidates_.begin(), candidates_.end(), is_better);
}

double MoveSearch::gain_of(const SampleSet& samples, const SearchGoal& goal,
                           const Candidate& candidate, double imbalance, double at_least) {
  const int moves = candidate.moves();
  apply(candidate, &trial_);
  // More imbalance than this cannot gain at_least, so the sum may stop there.
  const double enough = imbalance - moves * (at_least + goal.price);
  const double gain = (imbalance - judge_->imbalance(samples, trial_, enough)) / moves - goal.price;
  return gain;
}

// Evaluates the candidates and makes the best one, then those of the others that still gain nearly
// as much: lists are expensive, and the changes of one list often concern different ranks. Returns
// the number of moves.
int MoveSearch::make_best(const SampleSet& samples, const SearchGoal& goal, int max_moves,
                          double imbalance, Placement* placement) {
  trial_ = *placement;
  double best = 0.0;
  int tried = 0;
  for (Candidate& candidate : candidates_) {
    candidate.gain = 0.0;
    if (tried > 0 && out_of_time()) continue;
    if (tried >= effort_.tried && (best > 0.0 || imbalance < kLarge)) continue;
    const double min = effort_.nearly_as_much * best;
    if (candidate.bound - goal.price <= min || candidate.moves() > max_moves) continue;
    candidate.gain = gain_of(samples, goal, candidate, imbalance, min);
    trial_ = *placement;
    ++tried;
    best = std::max(best, candidate.gain);
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.gain != b.gain ? a.gain > b.gain : is_better(a, b);
  });
  int made = 0;
  changed_.assign(placement->slot_to_expert.size(), 0);
  changed_experts_.assign(replicas_.size(), 0);
  for (const Candidate& candidate : candidates_) {
    if (made > 0 && effort_.nearly_as_much >= 1.0) break;
    if (candidate.gain <= 0.0 || candidate.gain < effort_.nearly_as_much * best) break;
    if (made + candidate.moves() > max_moves || touches_changed(candidate, *placement)) continue;
    if (made > 0) {
      if (out_of_time()) break;
      const double gain =
          gain_of(samples, goal, candidate, imbalance, effort_.nearly_as_much * candidate.gain);
      trial_ = *placement;
      if (gain <= 0.0 || gain < effort_.nearly_as_much * candidate.gain) continue;
      imbalance -= candidate.moves() * (gain + goal.price);
    } else {
      imbalance -= candidate.moves() * (candidate.gain + goal.price);
    }
    note_changed(candidate, *placement);
    apply(candidate, placement);
    trial_ = *placement;
    made += candidate.moves();
  }
  return made;
}

// Whether an earlier change of the same list concerns one of its slots or experts: then its place
// in the list says nothing any more, and an expert could get two replicas on one rank.
bool MoveSearch::touches_changed(const Candidate& candidate, const Placement& placement) const {
  const auto changed = [&](int slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    return changed_[static_cast<size_t>(slot)] != 0 ||
           (expert != kUnusedSlot && changed_experts_[static_cast<size_t>(expert)] != 0);
  };
  if (changed(candidate.slot)) return true;
  return candidate.expert >= 0 ? changed_experts_[static_cast<size_t>(candidate.expert)] != 0
                               : changed(candidate.other);
}

void MoveSearch::note_changed(const Candidate& candidate, const Placement& before) {
  const auto note = [&](int32_t slot) {
    changed_[static_cast<size_t>(slot)] = 1;
    const int32_t expert = before.slot_to_expert[static_cast<size_t>(slot)];
    if (expert != kUnusedSlot) changed_experts_[static_cast<size_t>(expert)] = 1;
  };
  note(candidate.slot);
  if (candidate.expert >= 0) {
    changed_experts_[static_cast<size_t>(candidate.expert)] = 1;
  } else {
    note(candidate.other);
  }
}

double MoveSearch::run(const SampleSet& samples, const SearchGoal& goal, Placement* placement) {
  cut_short_ = false;
  end_of_run_ = work() + goal.max_work;
  double imbalance = judge_->examine(samples, *placement, &state_);
  for (int left = goal.max_moves; left > 0 && imbalance > goal.tolerance;) {
    if (left < goal.max_moves && out_of_time()) {
      cut_short_ = true;
      break;
    }
    list(samples, goal, *placement);
    const int made = make_best(samples, goal, left, imbalance, placement);
    if (made == 0) {
      cut_short_ = out_of_time();
      break;
    }
    left -= made;
    imbalance = judge_->examine(samples, *placement, &state_);
  }
  return imbalance;
}

}  // namespace wideep::online
