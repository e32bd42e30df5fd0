// SPDX-License-Identifier: Apache-2.0
//
// Evaluates a placement on expected load: the imbalance that shares leave, as a mean over weighted
// samples.
//
// The shares are the best for each sample (an engine that re-splits every iteration), or the best
// for the expected load (an engine that splits by the window), or equal.
//
// Thread safety: one thread at a time. Allocates on the first calls only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "online/sample_set.h"
#include "wideep/balancer.h"

namespace wideep::online {

// Nanoseconds of one of balance::resplit_steps(). Measured at 40 to 432 slots on 4 to 144 ranks,
// and a quarter more for caches that others use as well.
inline constexpr double kStepWork = 1.6;

enum class Sharing { kEachSample, kExpectedLoad, kEqual };

class PlacementJudge {
 public:
  PlacementJudge(Sharing sharing, int num_experts, int num_ranks);

  // May stop when the sum exceeds `enough`; the result is then a lower bound above `enough`.
  double imbalance(const SampleSet& samples, const balance::Placement& placement, double enough);

  // The full sum, with the imbalance and the hot ranks of each sample.
  struct Sample {
    double imbalance = 0.0;
    std::vector<char> hot;          // [R] 1: at the maximum, and no shares lower it
    int num_hot = 0;                // 0: balanced
    std::vector<double> rank_load;  // [R]
    balance::Shares shares;         // [S]
  };
  double examine(const SampleSet& samples, const balance::Placement& placement,
                 std::vector<Sample>* found);

  // Of all calls: an estimate of their nanoseconds, from what they counted.
  double work() const { return work_; }

  // The shares for the expected load (equal ones for kEqual).
  void choose_shares(std::span<const double> expected, balance::LayerPlan* plan);

 private:
  void begin(const SampleSet& samples, const balance::Placement& placement);
  void count_steps_since(int64_t before);
  double max_load(std::span<const double> load, const balance::Placement& placement);
  void write_equal_shares(const balance::Placement& placement);
  void load_ranks(std::span<const double> load, const balance::Placement& placement,
                  std::vector<double>* loads) const;
  void find_hot_ranks(double max_load, Sample* sample);

  Sharing sharing_;
  std::vector<int> replicas_;      // [E] scratch
  std::vector<double> rank_load_;  // [R] of the last max_load(), unless kEachSample
  balance::Resplitter resplitter_;
  balance::Shares shares_;
  double work_ = 0.0;
  std::vector<int> order_;  // of samples, greatest part of the sum first, so that sums end early
};

}  // namespace wideep::online
