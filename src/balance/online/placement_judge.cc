// SPDX-License-Identifier: Apache-2.0
//
// A search calls this for thousands of trial placements, most of which are worse than the best one
// so far. examine() therefore leaves behind an order of the samples, the worst first: imbalance()
// adds them in that order and stops when the sum is beyond `enough`. The order changes the cost
// and never the answer. Work is counted in re-split steps and slots, so that a limit of it means
// the same on every machine.
#include "online/placement_judge.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "placement/resplit_work.h"

namespace wideep::online {
namespace {

using balance::kUnusedSlot;
using balance::Placement;

constexpr double kBalanced = 1e-9;  // imbalance by rounding alone

constexpr double kSlotWork = 2.0;  // nanoseconds of a slot whose load is added to its rank's

}  // namespace

PlacementJudge::PlacementJudge(Sharing sharing, int num_experts, int num_ranks)
    : sharing_(sharing),
      replicas_(static_cast<size_t>(num_experts)),
      rank_load_(static_cast<size_t>(num_ranks)) {}

void PlacementJudge::write_equal_shares(const Placement& placement) {
  std::fill(replicas_.begin(), replicas_.end(), 0);
  for (const int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) ++replicas_[static_cast<size_t>(expert)];
  }
  for (size_t slot = 0; slot < shares_.size(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    shares_[slot] = expert == kUnusedSlot ? 0.0 : 1.0 / replicas_[static_cast<size_t>(expert)];
  }
}

void PlacementJudge::begin(const SampleSet& samples, const Placement& placement) {
  shares_.resize(placement.slot_to_expert.size());
  if (sharing_ == Sharing::kEqual) {
    work_ += kSlotWork * placement.num_slots();
    return write_equal_shares(placement);
  }
  const int64_t before = balance::resplit_steps();
  resplitter_.reset(placement);
  if (sharing_ == Sharing::kExpectedLoad) resplitter_.resplit(samples.expected(), shares_);
  count_steps_since(before);
}

void PlacementJudge::count_steps_since(int64_t before) {
  work_ += kStepWork * static_cast<double>(balance::resplit_steps() - before);
}

void PlacementJudge::load_ranks(std::span<const double> load, const Placement& placement,
                                std::vector<double>* loads) const {
  loads->assign(rank_load_.size(), 0.0);
  const size_t per_rank = shares_.size() / loads->size();
  for (size_t slot = 0; slot < shares_.size(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    if (expert == kUnusedSlot) continue;
    (*loads)[slot / per_rank] += shares_[slot] * load[static_cast<size_t>(expert)];
  }
}

double PlacementJudge::max_load(std::span<const double> load, const Placement& placement) {
  if (sharing_ == Sharing::kEachSample) {
    const int64_t before = balance::resplit_steps();
    const double max = resplitter_.resplit(load, shares_);
    count_steps_since(before);
    return max;
  }
  work_ += kSlotWork * placement.num_slots();
  load_ranks(load, placement, &rank_load_);
  return *std::max_element(rank_load_.begin(), rank_load_.end());
}

double PlacementJudge::imbalance(const SampleSet& samples, const Placement& placement,
                                 double enough) {
  begin(samples, placement);
  // Without an earlier examine() of these samples any order is correct, only slower.
  if (order_.size() != static_cast<size_t>(samples.size())) {
    order_.resize(static_cast<size_t>(samples.size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
  double sum = 0.0;
  for (const int i : order_) {
    sum += samples.weight(i) * std::max(0.0, max_load(samples.load(i), placement) - 1.0);
    if (sum > enough) break;
  }
  return sum;
}

void PlacementJudge::find_hot_ranks(double max_load, Sample* sample) {
  sample->hot.assign(rank_load_.size(), 0);
  sample->num_hot = 0;
  if (sample->imbalance <= kBalanced) return;
  if (sharing_ == Sharing::kEachSample) {
    for (const int rank : resplitter_.bottleneck_ranks()) {
      sample->hot[static_cast<size_t>(rank)] = 1;
      ++sample->num_hot;
    }
    return;
  }
  for (size_t rank = 0; rank < rank_load_.size(); ++rank) {
    if (rank_load_[rank] < max_load * (1.0 - kBalanced)) continue;
    sample->hot[rank] = 1;
    ++sample->num_hot;
  }
}

double PlacementJudge::examine(const SampleSet& samples, const Placement& placement,
                               std::vector<Sample>* found) {
  begin(samples, placement);
  found->resize(static_cast<size_t>(samples.size()));
  double sum = 0.0;
  for (int i = 0; i < samples.size(); ++i) {
    Sample& sample = (*found)[static_cast<size_t>(i)];
    const double load = max_load(samples.load(i), placement);
    sample.imbalance = std::max(0.0, load - 1.0);
    sample.shares = shares_;
    load_ranks(samples.load(i), placement, &sample.rank_load);
    work_ += 2.0 * kSlotWork * placement.num_slots();  // and the shares
    find_hot_ranks(load, &sample);
    sum += samples.weight(i) * sample.imbalance;
  }
  // Trials differ little from this placement: the samples that are worst now are likely to be worst
  // again.
  order_.resize(found->size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto part = [&](int i) {
    return samples.weight(i) * (*found)[static_cast<size_t>(i)].imbalance;
  };
  std::sort(order_.begin(), order_.end(),
            [&](int a, int b) { return part(a) != part(b) ? part(a) > part(b) : a < b; });
  return sum;
}

void PlacementJudge::choose_shares(std::span<const double> expected, balance::LayerPlan* plan) {
  shares_.resize(plan->placement.slot_to_expert.size());
  if (sharing_ == Sharing::kEqual) {
    write_equal_shares(plan->placement);
  } else {
    const int64_t before = balance::resplit_steps();
    resplitter_.reset(plan->placement);
    resplitter_.resplit(expected, shares_);
    count_steps_since(before);
  }
  plan->shares = shares_;
}

}  // namespace wideep::online
