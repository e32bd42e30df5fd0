// SPDX-License-Identifier: Apache-2.0
//
// How the experts of a layer are loaded, and the work that this makes for the busiest rank: from a
// user's statistics and a placement.
//
// A token chooses expert e with probability p_e, Σ p_e = top_k, and a slot of it gets the share s.
// For B tokens a slot has B·p·s rows on average and is reached with probability 1 − (1 − p·s)^B. A
// rank's rows vary with the tokens, so that the busiest rank has more than the busiest mean, the
// more the fewer the tokens are.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <vector>

#include "cost/expert_cost.h"
#include "plan/model_plan.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::cost {

// A layer's slots, on ranks; with what the work of any number of tokens needs of them.
class PlacedLayer {
 public:
  // choices: [slots] probability that a token has a row there, by rank. REQUIRES: num_ranks divides
  // the slots, of which there are some.
  PlacedLayer(int num_ranks, std::vector<double> choices);

  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  int slots_per_rank() const { return static_cast<int>(choices_.size() / ranks_.size()); }
  const std::vector<double>& choices() const { return choices_; }

  // A rank's rows of one token: mean and variance. Those of n independent tokens are n times that.
  struct RankRows {
    double mean = 0.0, variance = 0.0;
  };
  const std::vector<RankRows>& ranks() const { return ranks_; }
  size_t busiest() const { return busiest_; }  // the rank with the most rows on average

  // The mean work of a rank, or of all of them, with `num_tokens` tokens.
  ExpertWork work_of_rank(size_t rank, double num_tokens, int tile) const;
  ExpertWork work_of_all(double num_tokens, int tile) const;

 private:
  ExpertWork work_of(size_t first, size_t count, double num_tokens, int tile) const;

  std::vector<double> choices_;
  std::vector<double> log_missed_;  // [slots] ln(1 − choice)
  std::vector<RankRows> ranks_;
  size_t busiest_ = 0;
};

// The same load for every expert.
balance::ModelLoad uniform_load(int num_experts, std::vector<int> layers);

// Experts placed for `planned` (tokens of each expert), judged by `load`. weighted: replicas get
// the shares that are best for `load`, else equal ones.
// Errors (invalid input): a shape that the planner cannot serve.
Result<PlacedLayer> place_layer(const std::vector<double>& planned, const std::vector<double>& load,
                                int top_k, const balance::PlanShape& shape, bool weighted);

// A placement as it is, with the shares that are best for the load. load: [experts], any unit.
PlacedLayer placed_as(const balance::Placement& placement, const std::vector<double>& load,
                      int top_k);

// The work of the rank with the most rows, on average, with `num_tokens` tokens of all ranks.
// dispersion: the variance of a slot's rows is this times what independent tokens would have.
ExpertWork busiest_work(const PlacedLayer& layer, double num_tokens, int tile,
                        double dispersion = 1.0);

// The mean work of each rank, [num_ranks], without the chance that tokens come out uneven.
std::vector<ExpertWork> work_of_ranks(const PlacedLayer& layer, double num_tokens, int tile);

// The time of the slowest rank: of the one with the most rows, or of another that has fewer but
// reaches more experts, whose weights it has to read. REQUIRES: hardware.supports(shape.format).
ExpertTime slowest_time(const Hardware& hardware, const ProductKernel& kernel,
                        const ExpertShape& shape, const PlacedLayer& layer, double num_tokens);

// As work_of_ranks, the mean over all ranks.
ExpertWork mean_work(const PlacedLayer& layer, double num_tokens, int tile);

// The expected maximum of n independent standard normal variables.
double expected_maximum(double n);

// max / mean − 1 of the ranks' mean rows.
double imbalance_of(const PlacedLayer& layer);

}  // namespace wideep::cost
