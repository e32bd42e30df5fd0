// SPDX-License-Identifier: Apache-2.0
//
// Which ranks compute, die and return, for /health, /metrics and the dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/event.h"

namespace wideep::server {

class RankStates {
 public:
  // The ranks from start_ranks on are not wanted at first.
  RankStates(int num_ranks, int start_ranks);

  // Another serving process has died, the number_th: this one goes on. No rank computes until they
  // have changed.
  void begin_again(int number, int wanted, double now);
  // From now on the first `num_ranks` are wanted. done: called when they compute.
  void want(int num_ranks, std::function<void()> done);
  bool is_changing() const { return done_ != nullptr; }
  int wanted() const { return wanted_; }
  // Whether the first num_ranks compute, and no others: where those beyond them have died, no change
  // of members follows if no more than these are wanted.
  bool compute_alone(int num_ranks) const;

  // now: seconds since 1970.
  void died(const run::RankDied& rank, double now);
  void started(const run::RankStarted& rank);
  void changed(const run::MembersChanged& change, double now);
  void memory(const run::RankMemory& rank);
  // Another event to show.
  void note(double now, std::string text);

  // Why the service is not at its full size; "": it is.
  std::string degraded() const;
  std::string metrics() const;  // Prometheus
  // The state of each rank, how many are wanted, why that is not so, and the latest events.
  nlohmann::ordered_json json() const;

 private:
  enum class State : uint8_t { kActive, kDead, kStarting, kRetired };
  int count(State state) const;

  std::vector<State> states_;       // [ranks]
  std::vector<uint64_t> resident_;  // [ranks] bytes of their processes; 0: there is none
  int wanted_;
  int size_;  // ranks without which the service is degraded: those wanted, once they have computed
  std::function<void()> done_;
  int num_fronts_ = 0;      // serving processes that have died
  double broken_at_ = 0.0;  // the first death that no change of members has followed yet
  uint64_t deaths_ = 0, recoveries_ = 0, changes_ = 0;
  uint64_t replayed_ = 0, reloaded_ = 0, given_up_ = 0;
  double recovery_seconds_ = 0.0, longest_recovery_ = 0.0;
  struct Event {
    double time = 0.0;
    std::string text;
  };
  std::deque<Event> events_;
};

// Lines for people.
std::string line_of(const run::RankDied& rank);
std::string line_of(const run::MembersChanged& change, size_t num_ranks);

}  // namespace wideep::server
