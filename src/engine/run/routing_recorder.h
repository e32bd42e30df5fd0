// SPDX-License-Identifier: Apache-2.0
//
// The routing log of a run, or of a range of its iterations (recordings/routing_log.h), made of its
// events.
//
// With a range and without counts of requests, which ranks send only at the end, the file is
// written as soon as the range is complete; and again, if online balancing then ends a rebalance
// that has moved experts within the range.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recordings/routing_log.h"
#include "run/event.h"
#include "run/record_request.h"
#include "run/run.h"

namespace wideep::run {

class RoutingRecorder {
 public:
  // Outlives the recorder: run. next: as of StatisticsRecorder.
  RoutingRecorder(const Run& run, int64_t next);

  // A label of each request, by its index; REQUIRES: RoutingLogRequest::by_request.
  void set_labels(std::vector<std::string> labels) { log_.requests = std::move(labels); }

  // To be called with each of these events. Errors (failed): the file cannot be written.
  Status add(const Iteration& iteration);
  Status add(const Rebalance& rebalance);
  Status add(const RequestCounts& counts);
  // After the last event. Errors: those of write_routing_log.
  Status finish();

  // After finish(): as StatisticsRecorder::missing.
  std::string missing(const std::string& why) const;
  bool was_done_before() const { return done_before_; }
  // After finish(), if the request has no path; nullopt: no iteration was recorded.
  std::optional<recordings::RoutingLog> take();

 private:
  Status write();
  void complete();

  RoutingLogRequest request_;
  const ExpertRanks& experts_;
  bool balances_online_;
  recordings::RoutingLog log_;
  std::vector<std::vector<int64_t>> request_counts_;  // [requests] sums of RequestCounts
  int64_t next_;
  int64_t num_recorded_ = 0;
  int64_t first_ns_ = 0, last_ns_ = 0;  // begin and end of what was recorded, on one rank
  bool done_before_ = false;
  bool done_ = false;
};

}  // namespace wideep::run
