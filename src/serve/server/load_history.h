// SPDX-License-Identifier: Apache-2.0
//
// The load of the experts in the last minutes, for the pictures of the dashboard: pairs (token,
// expert) from rank to rank and of each expert, in windows of some seconds; and the loads of the
// ranks before, during and after the last moves of experts, iteration by iteration.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "online/online_balancer.h"
#include "run/event.h"
#include "run/iteration_summary.h"

namespace wideep::server {

class LoadHistory {
 public:
  static constexpr int64_t kWindowSeconds = 5;
  static constexpr size_t kMaxWindows = 36;  // as long as the dashboard looks back
  // Numbers from rank to rank in a reply: with many ranks only the newest windows have theirs.
  static constexpr size_t kMaxSent = 1 << 16;
  // Iterations kept for moves that end later, and those shown before and after a move.
  static constexpr size_t kMaxIterations = 64;
  static constexpr int64_t kAroundMove = 16;

  explicit LoadHistory(const run::ExpertRanks& ranks);

  // now: seconds since 1970.
  void add(const run::IterationSummary& iteration, double now);
  void add(const run::ExpertLoad& load, double now);
  void add(const online::Rebalance& rebalance);

  // The model's numbers of the MoE layers, ascending.
  const std::vector<int>& layers() const { return layers_; }

  // layer_index: of layers(), whose experts are wanted. since: windows that end before are left
  // out.
  nlohmann::ordered_json json(size_t layer_index, int64_t since) const;

 private:
  struct Window {
    int64_t time = 0;              // its first second, a multiple of kWindowSeconds
    std::vector<int64_t> sent;     // [R, R] of all layers; R: ranks of a stage
    std::vector<int64_t> experts;  // [L, E]; empty: nothing was reported
  };
  struct Step {
    int64_t iteration = 0;
    std::vector<std::vector<int64_t>> received;  // [L][R]
  };
  // The moves of one layer, of the last decision that has ended.
  struct Move {
    online::LayerSwitch what;
    int64_t decided = 0;
    size_t layer_index = 0;
    struct Load {
      int64_t iteration = 0;
      std::vector<int64_t> ranks;  // [R]
    };
    std::vector<Load> loads;
    bool is_complete() const {
      return !loads.empty() && loads.back().iteration >= what.iteration + kAroundMove - 1;
    }
  };
  Window& window_of(double time);
  void watch(const Step& step);
  nlohmann::ordered_json move_json() const;

  size_t num_ranks_;  // of a stage
  size_t num_experts_;
  std::vector<int> layers_;
  std::deque<Window> windows_;  // ascending, without those in which nothing happened
  std::deque<Step> steps_;
  std::optional<Move> move_;
};

}  // namespace wideep::server
