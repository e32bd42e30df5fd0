// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics of one rank over a range of iterations, in TensorRT-LLM's file format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "recordings/statistics_writer.h"
#include "run/record_request.h"
#include "wideep/status.h"

namespace wideep::run {

// Writes only iterations that every rank has finished, so that the files of a run that ends early
// contain the same iterations. Not thread safe.
class StatisticsRecorder {
 public:
  StatisticsRecorder(const StatisticsRequest& request, int rank, recordings::StatisticsShape shape);

  // Adds the counts of a MoE layer, [num_experts]; to be called in the order of execution.
  // Errors (failed): the file cannot be written, with the first iteration after the range.
  Status add(int64_t iteration, int layer, std::span<const int32_t> counts);

  // To be called at the end of the run. all_finished: every rank has finished the last iteration,
  // so it counts. Errors (failed): the file cannot be written. Returns ok if the range was never
  // reached: see num_recorded.
  Status finish(bool all_finished);

  int64_t num_recorded() const { return num_recorded_; }

 private:
  void commit();
  Status write();

  IterationRange range_;
  recordings::StatisticsWriter writer_;
  int64_t pending_iteration_ = -1;
  std::vector<std::pair<int, std::vector<int64_t>>> pending_;  // its (layer, counts)
  int64_t num_recorded_ = 0;
  bool written_ = false;
};

}  // namespace wideep::run
