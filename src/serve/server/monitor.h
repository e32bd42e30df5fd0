// SPDX-License-Identifier: Apache-2.0
//
// The recent history of the engine: iterations for /perf_metrics, and data for the dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "online/online_balancer.h"
#include "run/event.h"
#include "run/iteration_summary.h"
#include "server/balancer_state.h"
#include "server/expert_places.h"
#include "server/metrics.h"

namespace wideep::server {

class Monitor {
 public:
  static constexpr size_t kMaxIterations = 1000;  // iterations that are kept
  static constexpr size_t kMaxSeconds = 300;      // history of the dashboard
  static constexpr size_t kMaxRebalances = 20;

  // metrics: outlives it.
  Monitor(int num_ranks, bool balances_online, const Metrics& metrics)
      : num_ranks_(num_ranks), balances_online_(balances_online), metrics_(metrics) {}

  // The last number before the next iteration, of another serving process.
  void go_on_after(int64_t last) { before_ = last; }
  // now: seconds since 1970, here and below.
  void add(const run::IterationSummary& iteration, double now);
  void add(const online::Rebalance& rebalance, double now);
  void add(const ExpertWork& work, double now);
  // Of a request that has begun. peer: as engine::Request::peer.
  void add(const run::PromptTransfer& transfer, std::string_view peer);

  RecentImbalance recent_imbalance(double now) const;

  // The kept iterations after number `since` (−1: all), and how many were dropped: JSON. Takes 0.1
  // ms for a thousand.
  std::string iterations(int64_t since) const;

  // The data of the dashboard. since: the first second to include, in seconds since 1970.
  nlohmann::ordered_json dashboard(int64_t since, double now) const;

 private:
  // Written when it ends: a reply with a thousand would take milliseconds of the serving thread.
  struct Iteration {
    int64_t number = 0;
    std::string json;
  };
  // Sums over one second.
  struct Second {
    int64_t time = 0;
    int64_t iterations = 0;
    int64_t context_tokens = 0, generated_tokens = 0;
    double busy_seconds = 0.0;
    double imbalance_sum = 0.0;
    double initial_imbalance_sum = 0.0;
    int64_t num_initial = 0;
    double running_sum = 0.0, waiting_sum = 0.0, pages_sum = 0.0;  // as its iterations began
    int64_t max_pages = 0;
    std::vector<int64_t> rank_load;
    std::vector<bool> took_part;  // [ranks] in any of its iterations
    int64_t moves = 0, moved_bytes = 0;
    int64_t drafts = 0, drafted = 0, accepted = 0;
    ExpertWork experts;
  };
  Second& second_of(double time);
  nlohmann::ordered_json json_of(const run::IterationSummary& summary, double time) const;
  static nlohmann::ordered_json json_of(const Second& second);

  int num_ranks_;
  bool balances_online_;
  const Metrics& metrics_;
  std::deque<Iteration> iterations_;
  int64_t before_ = -1;                  // the last number before all of iterations_
  int64_t moves_ = 0, moved_bytes_ = 0;  // since the last iteration
  nlohmann::ordered_json transfers_ = nlohmann::ordered_json::array();  // likewise
  std::deque<Second> seconds_;  // ascending, without seconds in which nothing happened
  std::deque<nlohmann::ordered_json> rebalances_;
};

}  // namespace wideep::server
