// SPDX-License-Identifier: Apache-2.0
//
// A layer keeps the placements before, between and after its switches on trial, oldest first:
//
//   placements  P0      P1      P2      P3 (in service)
//   trials          T0      T1      T2
//
// Each iteration's rows are split once by every placement; trial i gets the difference of
// placements i and i + 1. So a row is split once more per trial, not twice, and the savings of all
// trials add up to those of P3 against P0. This work is why trials of one layer are limited: a
// switch that follows closely replaces the last placement and shares its trial.
#include "online/move_ledger.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace wideep::online {
namespace {

// Of one layer: one that switches in every iteration must not make the ledger slow, for each trial
// splits the rows of every iteration once more.
constexpr double kMaxTrials = 8.0;
// Trials are judged after so many times trial_rows, even if few moves were made.
constexpr double kJudgedTrials = 4.0;
// The first rest, in trial_rows; the longest is 2^kMaxDoublings times as long.
constexpr double kRestTrials = 4.0;
constexpr int kMaxDoublings = 6;

}  // namespace

LedgerSums& LedgerSums::operator+=(const LedgerSums& other) {
  moves += other.moves;
  expected_seconds += other.expected_seconds;
  saved_seconds += other.saved_seconds;
  lost_seconds += other.lost_seconds;
  paid_seconds += other.paid_seconds;
  return *this;
}

MoveLedger::MoveLedger(std::span<const balance::Placement> placements, const LedgerOptions& options)
    : options_(options), layers_(placements.size()) {
  WIDEEP_CHECK_GE(options.trial_rows, 1);
  for (size_t l = 0; l < placements.size(); ++l) {
    layers_[l].placements.push_back(served(placements[l]));
  }
}

std::unique_ptr<ServedLayer> MoveLedger::served(const balance::Placement& placement) const {
  return std::make_unique<ServedLayer>(
      options_.equal_shares ? Sharing::kEqual : Sharing::kEachSample,
      balance::LayerPlan{placement, balance::equal_shares(placement)});
}

// Trials of a layer begin at least an eighth of one apart, and the oldest ends after a whole one:
// so there are at most eight, each ends on time, and a switch that joins has most of its trial
// left.
void MoveLedger::switched(int layer, const balance::Placement& placement, int64_t moves) {
  Layer& at = layers_[static_cast<size_t>(layer)];
  const double apart = static_cast<double>(options_.trial_rows) / kMaxTrials;
  if (at.trials.empty() || at.trials.back().rows >= apart) {
    at.placements.push_back(served(placement));
    at.trials.emplace_back();
  } else {
    at.placements.back() = served(placement);
  }
  LedgerSums& sums = at.trials.back().sums;
  sums.moves += moves;
  sums.paid_seconds += take_unassigned();
  sums_.moves += moves;
}

double MoveLedger::expect(double imbalance_gained) {
  const double rows_of_rank = static_cast<double>(options_.trial_rows) / options_.num_ranks;
  const double seconds = imbalance_gained * rows_of_rank * seconds_per_row_;
  sums_.expected_seconds += seconds;
  return seconds;
}

void MoveLedger::pay(double seconds) {
  sums_.paid_seconds += seconds;
  unassigned_seconds_ += seconds;
}

std::optional<MoveLedger::Verdict> MoveLedger::add(const GroupLoads& loads, int top_k) {
  if (loads.first_rank_rows > 0) {
    seconds_per_row_ = 1e-9 * static_cast<double>(loads.first_rank_ns) /
                       static_cast<double>(loads.first_rank_rows);
  }
  const size_t num_experts = loads.tokens.size() / layers_.size();
  const std::span<const int64_t> all(loads.tokens);
  for (size_t l = 0; l < layers_.size(); ++l) {
    add_layer(layers_[l], all.subspan(l * num_experts, num_experts), loads.num_iterations);
  }
  // Every layer has as many.
  const std::span<const int64_t> first = all.first(num_experts);
  return judge(static_cast<double>(std::accumulate(first.begin(), first.end(), int64_t{0})), top_k);
}

void MoveLedger::add_layer(Layer& layer, std::span<const int64_t> tokens, int64_t num_iterations) {
  if (layer.trials.empty()) return;
  load_.assign(tokens.begin(), tokens.end());
  const double rows = std::accumulate(load_.begin(), load_.end(), 0.0);
  if (rows == 0.0) return;
  const bool is_even =
      options_.even_above_rows > 0 &&
      rows >= static_cast<double>(options_.even_above_rows * std::max<int64_t>(num_iterations, 1));
  const double rows_of_rank = rows / options_.num_ranks;
  fullest_.clear();
  for (const auto& placement : layer.placements) {
    fullest_.push_back(is_even ? rows_of_rank : rows_of_rank * (1.0 + placement->imbalance(load_)));
  }
  for (size_t i = 0; i < layer.trials.size(); ++i) {
    LedgerSums saved;
    const double seconds = (fullest_[i] - fullest_[i + 1]) * seconds_per_row_;
    (seconds > 0.0 ? saved.saved_seconds : saved.lost_seconds) = std::abs(seconds);
    layer.trials[i].sums += saved;
    layer.trials[i].rows += rows;
    sums_ += saved;
  }
  while (!layer.trials.empty() &&
         layer.trials.front().rows >= static_cast<double>(options_.trial_rows)) {
    end_trial(layer);
  }
}

// The oldest one.
void MoveLedger::end_trial(Layer& layer) {
  judged_ += layer.trials.front().sums;
  settled_ += layer.trials.front().sums;
  layer.trials.pop_front();
  layer.placements.pop_front();
}

LedgerSums MoveLedger::pending() const {
  LedgerSums sums;
  sums.paid_seconds = unassigned_seconds_;
  for (const Layer& layer : layers_) {
    for (const Trial& trial : layer.trials) sums += trial.sums;
  }
  return sums;
}

int MoveLedger::num_trials(int layer) const {
  return static_cast<int>(layers_[static_cast<size_t>(layer)].trials.size());
}

double MoveLedger::take_unassigned() {
  unassigned_rows_ = 0.0;
  return std::exchange(unassigned_seconds_, 0.0);
}

std::optional<MoveLedger::Verdict> MoveLedger::rest(double rows) {
  rest_rows_ = std::max(0.0, rest_rows_ - rows);
  if (rests()) return std::nullopt;
  // Trials that ended meanwhile are those of the verdict. What was spent meanwhile, to look at
  // loads and to keep this ledger, is no cost of the moves to come.
  judged_ = {};
  rows_ = 0.0;
  settled_.paid_seconds += take_unassigned();
  return Verdict{.rests = false, .sums = {}, .rest_tokens = 0};
}

std::optional<MoveLedger::Verdict> MoveLedger::judge(double rows, int top_k) {
  if (rests()) return rest(rows);
  rows_ += rows;
  const auto trial_rows = static_cast<double>(options_.trial_rows);
  unassigned_rows_ += rows;
  // Nothing has moved for so long: a move that comes now must not pay for all this time.
  if (unassigned_rows_ >= kJudgedTrials * trial_rows) settled_.paid_seconds += take_unassigned();
  const bool is_due = judged_.moves >= options_.judged_moves ||
                      (judged_.moves > 0 && rows_ >= kJudgedTrials * trial_rows);
  if (!is_due) return std::nullopt;
  const LedgerSums judged = std::exchange(judged_, {});
  rows_ = 0.0;
  if (judged.net_seconds() > 0.0 || !options_.may_rest) {
    rests_in_a_row_ = 0;
    return std::nullopt;
  }
  rest_rows_ = kRestTrials * trial_rows * (1 << std::min(rests_in_a_row_++, kMaxDoublings));
  return Verdict{.rests = true,
                 .sums = judged,
                 .rest_tokens = static_cast<int64_t>(rest_rows_) / std::max(top_k, 1)};
}

}  // namespace wideep::online
