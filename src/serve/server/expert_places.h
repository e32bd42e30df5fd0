// SPDX-License-Identifier: Apache-2.0
//
// What ranks have of their experts where a model is larger than memory, and how often that is what
// tokens need: for /metrics and the dashboard.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "run/event.h"

namespace wideep::server {

// What ranks have done with experts for some time, in all layers.
struct ExpertWork {
  residency::ResidencyCounts counts;
  uint64_t memory_bytes = 0;  // of chosen experts that were in memory, as they stay there
  uint64_t disk_bytes = 0;    // read

  ExpertWork& operator+=(const ExpertWork& each);
};
nlohmann::ordered_json work_json(const ExpertWork& work);

class ExpertPlaces {
 public:
  // Another serving process has died: what ranks have counted until they report again was its to
  // count.
  void go_on() { goes_on_ = true; }
  // Returns what the rank has done since its last report. A rank that counts less than before has
  // begun anew, with other members.
  ExpertWork take(run::ExpertPlaces places);
  // The rank's process has ended: the next one counts from 0.
  void ended(int rank) { ranks_[rank] = {}; }

  // Prometheus; "": all experts are in memory. Of ranks what their processes have counted; of layers
  // sums that never fall.
  std::string metrics() const;
  // Of each rank and of each layer over all ranks; null: all experts are in memory.
  nlohmann::ordered_json json() const;

 private:
  struct Layer {
    residency::ResidencyCounts counts;  // of all ranks that there have been
    int num_resident = 0;               // now
  };
  bool exist() const { return !layers_.empty(); }
  std::map<int, Layer> layers() const;

  std::map<int, run::ExpertPlaces> ranks_;  // the last reports; without layers: it has ended
  std::map<int, residency::ResidencyCounts> layers_;
  bool goes_on_ = false;
};

}  // namespace wideep::server
