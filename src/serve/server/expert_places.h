// SPDX-License-Identifier: Apache-2.0
//
// What ranks have of their experts where a model is larger than memory, and how often that is what
// tokens need: for /metrics and the dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "run/event.h"

namespace wideep::server {

class ExpertPlaces {
 public:
  void take(const run::ExpertPlaces& places) { ranks_[places.rank] = places; }
  // The rank's process has ended: the next one counts from 0.
  void ended(int rank) { ranks_.erase(rank); }

  // Prometheus; "": all experts are in memory.
  std::string metrics() const;
  // Of each rank and of each layer over all ranks; null: all experts are in memory.
  nlohmann::ordered_json json() const;

 private:
  std::map<int, run::ExpertPlaces> ranks_;
};

}  // namespace wideep::server
