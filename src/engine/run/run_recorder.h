// SPDX-License-Identifier: Apache-2.0
//
// What a run was asked to record of its experts (run/record_request.h): expert statistics and the
// routing log, made of the events that every command receives.
//
//   RankGroup::next → RunRecorder → StatisticsRecorder → meta_info.json, rank*.safetensors, slots/
//                                 → RoutingRecorder    → the routing log
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/routing_recorder.h"
#include "run/run.h"
#include "run/statistics_recorder.h"

namespace wideep::run {

class RunRecorder {
 public:
  // next: the least number of the first iteration; if it is not 0, another process has received the
  // events before. run outlives the recorder.
  RunRecorder(const Run& run, int64_t next);

  // To be called with every event.
  void add(const Event& event);
  // After the last one. ended: how the run ended; says what is missing, in a line of the log.
  void finish(const Status& ended);

  // The first error: a file could not be written. What has files of its own is recorded all the
  // same.
  const Status& status() const { return status_; }
  RoutingRecorder* routing() { return routing_ ? &*routing_ : nullptr; }

 private:
  void take(const Iteration& iteration);
  void take(const Rebalance& rebalance);
  void take(const RequestCounts& counts);
  void note(const Status& status);

  bool keeps_ranks_;
  std::optional<StatisticsRecorder> statistics_;
  std::optional<RoutingRecorder> routing_;
  Status status_;
  bool finished_ = false;
};

}  // namespace wideep::run
