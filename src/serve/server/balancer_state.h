// SPDX-License-Identifier: Apache-2.0
//
// Whether online balancing works, and whether its moves pay for themselves: for /metrics and the
// dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "run/background_watch.h"
#include "run/online_parts.h"

namespace wideep::server {

// Means over layers and the iterations of the last minute.
struct RecentImbalance {
  double ratio = 0.0;
  std::optional<double> without_moves;  // as with experts in their initial slots
};

class BalancerState {
 public:
  // read: the totals of the present group; null: experts stay where they are.
  explicit BalancerState(std::function<run::OnlineTotals()> read) : read_(std::move(read)) {}

  void take(const run::BackgroundSilence& silence);
  // The group has other members, whose threads have not been silent.
  void members_changed() { silent_.clear(); }

  enum class State { kOff, kActive, kResting, kSilent };
  State state() const;
  // In Prometheus' text format.
  std::string metrics(const RecentImbalance& imbalance) const;
  nlohmann::ordered_json json() const;

 private:
  // What only grows.
  struct Counted {
    online::LedgerSums ledger;
    int64_t hash_failures = 0;
    int64_t lent_copies = 0;
    Counted& operator+=(const Counted& other);
  };
  Counted counted() const;

  std::function<run::OnlineTotals()> read_;
  // Mutable: reading a group's totals may find that they are of another one.
  mutable Counted before_;                // of earlier groups
  mutable Counted last_;                  // of this one, when it was last read
  mutable uint32_t group_ = 0;            // of last_
  std::set<std::pair<int, int>> silent_;  // stage and rank of threads
};

std::string_view name_of(BalancerState::State state);

}  // namespace wideep::server
