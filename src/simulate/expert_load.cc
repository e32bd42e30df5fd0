// SPDX-License-Identifier: Apache-2.0
#include "simulate/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/try.h"

namespace wideep::simulate {
namespace {

// The rows of a rank: mean and variance.
struct RankRows {
  double mean = 0.0, variance = 0.0;
};

RankRows rows_of_rank(std::span<const double> choices, double num_tokens) {
  RankRows rows;
  for (const double choice : choices) {
    rows.mean += num_tokens * choice;
    rows.variance += num_tokens * choice * (1.0 - std::min(choice, 1.0));
  }
  return rows;
}

// The probability that any of the tokens has a row in a slot, 1 − (1 − choice)^tokens.
double reached_by(double num_tokens, double choice) {
  // 1 − e^−40 is 1 in double precision, and (1 − p)^n ≤ e^(−n·p).
  if (choice >= 1.0 || num_tokens * choice > 40.0) return 1.0;
  return 1.0 - std::exp(num_tokens * std::log1p(-choice));
}

// No fewer than the experts that the tokens reach: with the same rows, slots that are chosen
// equally often are reached most.
double most_reached(std::span<const double> choices, double num_tokens) {
  const auto slots = static_cast<double>(choices.size());
  const double mean = std::reduce(choices.begin(), choices.end()) / slots;
  return slots * reached_by(num_tokens, mean);
}

// The expected number of rows in whole tiles: a slot that is reached has at least one tile, and the
// last tile of many is half empty.
double tiled(double rows, double reached, int tile) {
  return std::max(reached * tile, rows + reached * (tile - 1) / 2.0);
}

ExpertWork work_of_rank(std::span<const double> choices, double num_tokens, int tile) {
  ExpertWork work;
  for (const double choice : choices) {
    const double rows = num_tokens * choice;
    const double reached = reached_by(num_tokens, choice);
    work.experts += reached;
    work.rows += rows;
    work.tiled_rows += tiled(rows, reached, tile);
  }
  return work;
}

PlacedLayer placed_with(const balance::Placement& placement, const std::vector<double>& load,
                        int top_k, const balance::Shares& shares) {
  const double all = std::reduce(load.begin(), load.end());
  const double scale = all > 0.0 ? top_k / all : 0.0;
  PlacedLayer placed{.num_ranks = placement.ep_size};
  for (size_t slot = 0; slot < shares.size(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    const double tokens = expert == balance::kUnusedSlot ? 0.0 : load[static_cast<size_t>(expert)];
    placed.choices.push_back(std::min(1.0, tokens * scale) * shares[slot]);
  }
  return placed;
}

}  // namespace

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
  const auto slots = static_cast<size_t>(layer.slots_per_rank());
  const auto choices_of = [&](size_t rank) {
    return std::span(layer.choices).subspan(rank * slots, slots);
  };
  std::vector<RankRows> ranks(static_cast<size_t>(layer.num_ranks));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank] = rows_of_rank(choices_of(rank), num_tokens);
  }
  const auto busiest = std::ranges::max_element(ranks, {}, &RankRows::mean);
  const std::span<const double> choices = choices_of(static_cast<size_t>(busiest - ranks.begin()));
  const double deviation = std::sqrt(dispersion * busiest->variance);
  if (deviation == 0.0) return work_of_rank(choices, num_tokens, tile);
  // Ranks far below the busiest hardly ever become it.
  double rivals = 0.0;
  for (const RankRows& rank : ranks) rivals += std::exp((rank.mean - busiest->mean) / deviation);
  // Its rows vary as if there were more tokens, which reach more of its experts, too.
  const double more = 1.0 + expected_maximum(rivals) * deviation / busiest->mean;
  return work_of_rank(choices, num_tokens * more, tile);
}

std::vector<ExpertWork> work_of_ranks(const PlacedLayer& layer, double num_tokens, int tile) {
  const auto slots = static_cast<size_t>(layer.slots_per_rank());
  std::vector<ExpertWork> works;
  for (size_t first = 0; first < layer.choices.size(); first += slots) {
    works.push_back(work_of_rank(std::span(layer.choices).subspan(first, slots), num_tokens, tile));
  }
  return works;
}

ExpertTime slowest_time(const Hardware& hardware, const ProductKernel& kernel,
                        const ExpertShape& shape, const PlacedLayer& layer, double num_tokens) {
  const ExpertWork most_rows = busiest_work(layer, num_tokens, kernel.tile, hardware.dispersion);
  ExpertTime slowest = expert_time(hardware, kernel, shape, most_rows);
  const auto slots = static_cast<size_t>(layer.slots_per_rank());
  // The rank with the most rows has all the experts that another could have.
  if (most_rows.experts >= static_cast<double>(slots) - 0.01) return slowest;
  for (size_t first = 0; first < layer.choices.size(); first += slots) {
    const std::span<const double> choices = std::span(layer.choices).subspan(first, slots);
    if (most_reached(choices, num_tokens) <= most_rows.experts) continue;
    const ExpertTime time =
        expert_time(hardware, kernel, shape, work_of_rank(choices, num_tokens, kernel.tile));
    if (time.seconds() > slowest.seconds()) slowest = time;
  }
  return slowest;
}

ExpertWork mean_work(const PlacedLayer& layer, double num_tokens, int tile) {
  ExpertWork mean = work_of_rank(layer.choices, num_tokens, tile);
  for (double* part : {&mean.experts, &mean.rows, &mean.tiled_rows}) *part /= layer.num_ranks;
  return mean;
}

double imbalance_of(const PlacedLayer& layer) {
  std::vector<double> rows(static_cast<size_t>(layer.num_ranks), 0.0);
  for (size_t slot = 0; slot < layer.choices.size(); ++slot) {
    rows[slot / static_cast<size_t>(layer.slots_per_rank())] += layer.choices[slot];
  }
  return balance::imbalance_ratio(rows);
}

}  // namespace wideep::simulate
