// SPDX-License-Identifier: Apache-2.0
//
// The places where prompts are kept beyond the KV cache, and what fetching from them has saved: for
// /metrics and the dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "run/event.h"
#include "run/prompt_fetches.h"

namespace wideep::server {

class PlaceStates {
 public:
  // labels: of the run's places (store::Place::label()), nearest first; none: no prompts are kept.
  explicit PlaceStates(const std::vector<std::string>& labels);

  bool exist() const { return !tiers_.empty(); }
  // Whoever decides about fetches. read: its counts, on the serving thread.
  void connect(std::function<run::FetchCounts()> read) { read_ = std::move(read); }
  // Another serving process has died: what ranks have counted until they report again was its to
  // count.
  void go_on() { goes_on_ = true; }
  void take(const run::StoreState& state);
  // The rank's process has ended: the next one counts from 0.
  void ended(int rank);

  // saved_seconds never falls, as a counter must not: a fetch that took longer than computing would
  // have taken lowers what read() gives.
  run::FetchCounts fetches() const;
  // Prometheus; "": there are no places.
  std::string metrics() const;
  // What each tier has, and what was saved; null: there are no places.
  nlohmann::ordered_json json() const;

 private:
  struct Tier {
    std::string label;
    store::PlaceCounts counts;  // of all ranks that there have been
    store::PlaceSize size;      // as a rank has seen it last: all share the place
    std::set<int> out;          // ranks that leave it alone
  };
  // What a process has counted since it began.
  struct Counted {
    uint64_t not_offered = 0;
    std::map<std::string, store::PlaceCounts, std::less<>> tiers;  // by label
  };
  Tier& tier(std::string_view label);

  std::function<run::FetchCounts()> read_;
  mutable double saved_seconds_ = 0.0;  // the most that was read
  std::vector<Tier> tiers_;
  uint64_t not_offered_ = 0;
  std::map<int, Counted> last_;  // of each rank that has reported, or has ended
  bool goes_on_ = false;
};

}  // namespace wideep::server
