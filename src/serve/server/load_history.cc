// SPDX-License-Identifier: Apache-2.0
//
// Windows and iterations that are kept have a fixed number, so memory does not grow with the load;
// of many ranks only the newest windows have numbers from rank to rank, whose size is a square. A
// move is told when it has ended, so what came before it is found among the latest iterations. Its
// picture stays until its last iteration has come: under steady balancing none would be complete
// otherwise.
#include "server/load_history.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// [R][R] as a list of rows.
ordered_json rows_json(const std::vector<int64_t>& cells, size_t columns) {
  ordered_json rows = ordered_json::array();
  for (size_t at = 0; at < cells.size(); at += columns) {
    rows.push_back(std::span(cells).subspan(at, columns));
  }
  return rows;
}

}  // namespace

LoadHistory::LoadHistory(const run::ExpertRanks& ranks)
    : num_ranks_(static_cast<size_t>(ranks.stage_size)),
      num_experts_(static_cast<size_t>(ranks.statistics.num_experts)) {
  for (int stage = 0; ranks.stage_size > 0 && stage < ranks.num_stages(); ++stage) {
    const std::vector<int>& layers = ranks.layers_of_stage(stage);
    layers_.insert(layers_.end(), layers.begin(), layers.end());
  }
}

LoadHistory::Window& LoadHistory::window_of(double time) {
  const int64_t start = static_cast<int64_t>(std::floor(time)) / kWindowSeconds * kWindowSeconds;
  // If the clock was set back, the last window goes on until the clock has caught up.
  if (windows_.empty() || windows_.back().time < start) {
    windows_.push_back({start, std::vector<int64_t>(num_ranks_ * num_ranks_), {}});
    if (windows_.size() > kMaxWindows) windows_.pop_front();
  }
  return windows_.back();
}

void LoadHistory::add(const run::IterationSummary& iteration, double now) {
  Window& window = window_of(now);
  for (size_t from = 0; from < iteration.sent.size(); ++from) {
    for (size_t to = 0; to < num_ranks_; ++to) {
      window.sent[from * num_ranks_ + to] += iteration.sent[from][to];
    }
  }
  steps_.push_back({iteration.iteration, iteration.received});
  if (steps_.size() > kMaxIterations) steps_.pop_front();
  if (move_ && !move_->is_complete()) watch(steps_.back());
}

void LoadHistory::add(const run::ExpertLoad& load, double now) {
  Window& window = window_of(now);
  window.experts.resize(layers_.size() * num_experts_);
  const size_t first = static_cast<size_t>(load.first_layer) * num_experts_;
  for (size_t i = 0; i < load.counts.size() && first + i < window.experts.size(); ++i) {
    window.experts[first + i] += load.counts[i];
  }
}

// Moves that others overtake are left out: a picture is shown until its last iteration has come.
void LoadHistory::add(const online::Rebalance& rebalance) {
  if (rebalance.switches.empty() || (move_ && !move_->is_complete())) return;
  const auto max = std::ranges::max_element(rebalance.switches, {}, &online::LayerSwitch::moves);
  const auto layer = std::ranges::find(layers_, max->layer);
  if (max->moves == 0 || layer == layers_.end()) return;
  move_ = {.what = *max,
           .decided = rebalance.decided,
           .layer_index = static_cast<size_t>(layer - layers_.begin()),
           .loads = {}};
  for (const Step& step : steps_) watch(step);
}

void LoadHistory::watch(const Step& step) {
  const bool is_near = step.iteration > move_->decided - kAroundMove &&
                       step.iteration < move_->what.iteration + kAroundMove;
  if (is_near) move_->loads.push_back({step.iteration, step.received[move_->layer_index]});
}

ordered_json LoadHistory::move_json() const {
  if (!move_) return nullptr;
  ordered_json loads = ordered_json::array();
  for (const Move::Load& each : move_->loads) {
    loads.push_back({{"iteration", each.iteration}, {"received", each.ranks}});
  }
  return {{"layer", move_->what.layer},
          {"moves", move_->what.moves},
          {"decided", move_->decided},
          {"switched", move_->what.iteration},
          {"loads", std::move(loads)}};
}

ordered_json LoadHistory::json(size_t layer_index, int64_t since) const {
  const size_t with_sent =
      std::max<size_t>(1, kMaxSent / std::max<size_t>(1, num_ranks_ * num_ranks_));
  ordered_json windows = ordered_json::array();
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& each = windows_[i];
    if (each.time + kWindowSeconds <= since) continue;
    const bool sends = i + with_sent >= windows_.size();
    windows.push_back(
        {{"time", each.time},
         {"sent", sends ? rows_json(each.sent, num_ranks_) : ordered_json(nullptr)},
         {"experts",
          each.experts.empty()
              ? ordered_json(nullptr)
              : ordered_json(
                    std::span(each.experts).subspan(layer_index * num_experts_, num_experts_))}});
  }
  return {{"window_seconds", kWindowSeconds},
          {"layers", layers_},
          {"layer", layers_.empty() ? ordered_json(nullptr) : ordered_json(layers_[layer_index])},
          {"num_ranks", num_ranks_},
          {"num_experts", num_experts_},
          {"windows", std::move(windows)},
          {"move", move_json()}};
}

}  // namespace wideep::server
