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
#include "wideep/status.h"

namespace wideep::run {

// Iterations first ... last − 1.
struct IterationRange {
  int64_t first = 0;
  int64_t last = 0;

  // From "A-B". Errors (invalid input): not two numbers, or not A < B; `name` begins the message.
  static Result<IterationRange> parse(const std::string& text, const std::string& name);
};

struct StatisticsRequest {
  std::string directory;
  IterationRange range;
};

// Only iterations that every rank has finished are written, so that the files of a run that ends
// early agree with each other. Not thread safe.
class StatisticsRecorder {
 public:
  StatisticsRecorder(const StatisticsRequest& request, int rank, recordings::StatisticsShape shape);

  // A MoE layer of an iteration, in the order they run.
  Status add(int64_t iteration, int layer, std::span<const int32_t> counts);

  // The run has ended; all_finished: regularly, so that the last iteration counts.
  // Errors (failed): cannot write. Returns ok when the range was never reached: see num_recorded.
  Status finish(bool all_finished);

  int64_t num_recorded() const { return num_recorded_; }

 private:
  void commit();
  Status write();

  IterationRange range_;
  recordings::StatisticsWriter writer_;
  int64_t pending_iteration_ = -1;
  std::vector<std::pair<int, std::vector<int64_t>>> pending_;  // its layers and their counts
  int64_t num_recorded_ = 0;
  bool written_ = false;
};

}  // namespace wideep::run
