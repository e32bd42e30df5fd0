// SPDX-License-Identifier: Apache-2.0
//
// The advisor asks for a layer's work millions of times. So the logarithm of each slot is kept, and
// exp_of() has no branches, for compilers to compute several slots at once. Uneven tokens are not
// drawn: the busiest rank's rows are raised by the expected maximum of as many normal variables as
// it has rivals. Another rank is looked at only if its rows suffice to reach more experts than the
// busiest one does.
#include "cost/expert_load.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/try.h"

namespace wideep::cost {
namespace {

// ln(1 − choice) of a slot that every token chooses: any number of tokens reaches it.
constexpr double kMinLog = -1e6;

// e^x for x ≤ 0, to 1e-14, and no less than e^−40, which 1 − e^x does not tell from 0. Without
// branches and calls, so that compilers compute several at once: the advisor wants millions.
double exp_of(double x) {
  x = std::max(x, -40.0);
  constexpr double kToWhole = 0x1.8p52;  // adding it rounds to a whole number
  const double rounded = x * std::numbers::log2e + kToWhole;
  const double rest = x - (rounded - kToWhole) * std::numbers::ln2;  // |rest| ≤ ln2 / 2
  constexpr double kFactorials[] = {39916800, 3628800, 362880, 40320, 5040, 720,
                                    120,      24,      6,      2,     1,    1};
  double power = 0.0;  // e^rest by its series
  for (const double factorial : kFactorials) power = power * rest + 1.0 / factorial;
  const auto exponent = std::bit_cast<uint64_t>(rounded) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(power) + exponent);
}

// The choices of a token with which a rank's slots, all chosen equally often, are reached
// `reached` times. Slots that are not chosen equally often are reached less with the same rows.
double min_choices(double slots, double reached, double num_tokens) {
  return -slots * std::expm1(std::log1p(-reached / slots) / num_tokens);
}

PlacedLayer placed_with(const balance::Placement& placement, const std::vector<double>& load,
                        int top_k, const balance::Shares& shares) {
  const double all = std::reduce(load.begin(), load.end());
  const double scale = all > 0.0 ? top_k / all : 0.0;
  std::vector<double> choices;
  for (size_t slot = 0; slot < shares.size(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    const double tokens = expert == balance::kUnusedSlot ? 0.0 : load[static_cast<size_t>(expert)];
    choices.push_back(std::min(1.0, tokens * scale) * shares[slot]);
  }
  return {placement.ep_size, std::move(choices)};
}

}  // namespace

PlacedLayer::PlacedLayer(int num_ranks, std::vector<double> choices)
    : choices_(std::move(choices)), ranks_(static_cast<size_t>(num_ranks)) {
  const size_t slots = choices_.size() / ranks_.size();
  for (size_t slot = 0; slot < choices_.size(); ++slot) {
    const double choice = choices_[slot];
    log_missed_.push_back(choice < 1.0 ? std::log1p(-choice) : kMinLog);
    RankRows& rows = ranks_[slot / slots];
    rows.mean += choice;
    rows.variance += choice * (1.0 - std::min(choice, 1.0));
  }
  const auto max = std::ranges::max_element(ranks_, {}, &RankRows::mean);
  busiest_ = static_cast<size_t>(max - ranks_.begin());
}

// A slot is reached with probability 1 − (1 − choice)^tokens. Rows come in whole tiles: a slot that
// is reached has at least one, and the last one of many is half empty.
ExpertWork PlacedLayer::work_of(size_t first, size_t count, double num_tokens, int tile) const {
  ExpertWork work;
  const double half_tile = (tile - 1) / 2.0;
  constexpr size_t kAtOnce = 16;
  for (size_t begin = first; begin < first + count; begin += kAtOnce) {
    const size_t n = std::min(kAtOnce, first + count - begin);
    double reached[kAtOnce];
    for (size_t i = 0; i < n; ++i) reached[i] = 1.0 - exp_of(num_tokens * log_missed_[begin + i]);
    for (size_t i = 0; i < n; ++i) {
      const double rows = num_tokens * choices_[begin + i];
      work.experts += reached[i];
      work.rows += rows;
      work.tiled_rows += std::max(reached[i] * tile, rows + reached[i] * half_tile);
    }
  }
  return work;
}

ExpertWork PlacedLayer::work_of_rank(size_t rank, double num_tokens, int tile) const {
  const auto slots = static_cast<size_t>(slots_per_rank());
  return work_of(rank * slots, slots, num_tokens, tile);
}

ExpertWork PlacedLayer::work_of_all(double num_tokens, int tile) const {
  return work_of(0, choices_.size(), num_tokens, tile);
}

// Blom, Statistical Estimates and Transformed Beta-Variables, 1958; the quantile after Tocher.
double expected_maximum(double n) {
  if (n <= 1.0) return 0.0;
  const double p = (n - 0.375) / (n + 0.25);
  return std::log(p / (1.0 - p)) / 1.702;
}

balance::ModelLoad uniform_load(int num_experts, std::vector<int> layers) {
  balance::ModelLoad load{.num_experts = num_experts, .layers = std::move(layers)};
  load.load.assign(load.layers.size(), std::vector<double>(static_cast<size_t>(num_experts), 1.0));
  return load;
}

Result<PlacedLayer> place_layer(const std::vector<double>& planned, const std::vector<double>& load,
                                int top_k, const balance::PlanShape& shape, bool weighted) {
  const balance::PlannerOptions options{.split = weighted ? balance::Split::kWeighted
                                                          : balance::Split::kEqual};
  WIDEEP_TRY_ASSIGN(const auto planner, balance::make_planner("wideep", shape, options));
  balance::LayerPlan plan;
  planner->plan(planned, &plan);
  return placed_with(
      plan.placement, load, top_k,
      weighted ? balance::resplit(plan.placement, load) : balance::equal_shares(plan.placement));
}

PlacedLayer placed_as(const balance::Placement& placement, const std::vector<double>& load,
                      int top_k) {
  return placed_with(placement, load, top_k, balance::resplit(placement, load));
}

ExpertWork busiest_work(const PlacedLayer& layer, double num_tokens, int tile, double dispersion) {
  const PlacedLayer::RankRows& busiest = layer.ranks()[layer.busiest()];
  const double deviation = std::sqrt(dispersion * num_tokens * busiest.variance);
  if (deviation == 0.0) return layer.work_of_rank(layer.busiest(), num_tokens, tile);
  // Ranks far below the busiest hardly ever become it.
  double rivals = 0.0;
  for (const PlacedLayer::RankRows& rank : layer.ranks()) {
    rivals += exp_of(num_tokens * (rank.mean - busiest.mean) / deviation);
  }
  // Its rows vary as if there were more tokens, which reach more of its experts, too.
  const double more = 1.0 + expected_maximum(rivals) * deviation / (num_tokens * busiest.mean);
  return layer.work_of_rank(layer.busiest(), num_tokens * more, tile);
}

std::vector<ExpertWork> work_of_ranks(const PlacedLayer& layer, double num_tokens, int tile) {
  std::vector<ExpertWork> works;
  for (size_t rank = 0; rank < layer.ranks().size(); ++rank) {
    works.push_back(layer.work_of_rank(rank, num_tokens, tile));
  }
  return works;
}

ExpertTime slowest_time(const Hardware& hardware, const ProductKernel& kernel,
                        const ExpertShape& shape, const PlacedLayer& layer, double num_tokens) {
  const ExpertWork max_rows = busiest_work(layer, num_tokens, kernel.tile, hardware.dispersion);
  ExpertTime slowest = expert_time(hardware, kernel, shape, max_rows);
  const double slots = layer.slots_per_rank();
  // The rank with the most rows has all the experts that another could have.
  if (max_rows.experts >= slots - 0.01) return slowest;
  const double min = min_choices(slots, max_rows.experts, num_tokens);
  for (size_t rank = 0; rank < layer.ranks().size(); ++rank) {
    if (layer.ranks()[rank].mean <= min) continue;
    const ExpertTime time =
        expert_time(hardware, kernel, shape, layer.work_of_rank(rank, num_tokens, kernel.tile));
    if (time.seconds() > slowest.seconds()) slowest = time;
  }
  return slowest;
}

ExpertWork mean_work(const PlacedLayer& layer, double num_tokens, int tile) {
  ExpertWork mean = layer.work_of_all(num_tokens, tile);
  for (double* part : {&mean.experts, &mean.rows, &mean.tiled_rows}) *part /= layer.num_ranks();
  return mean;
}

double imbalance_of(const PlacedLayer& layer) {
  std::vector<double> rows;
  for (const PlacedLayer::RankRows& rank : layer.ranks()) rows.push_back(rank.mean);
  return balance::imbalance_ratio(rows);
}

}  // namespace wideep::cost
