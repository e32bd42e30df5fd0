// SPDX-License-Identifier: Apache-2.0
//
// Traces a range of iterations of a run into a file, and starts and stops an external profiler with
// that range.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"
#include "run/record_request.h"

namespace wideep::run {

enum class Marks { kNone, kIterations, kAllSpans };

struct ProfileRequest {
  std::string path;                    // of the Chrome trace
  std::vector<IterationRange> ranges;  // empty: no trace; marks in every iteration
  bool allocations = false;            // also trace allocations of the forward thread
  Marks marks = Marks::kNone;          // NVTX; REQUIRES (others): built with CUDA

  bool writes_trace() const { return !ranges.empty(); }
};

// From "A-B" or "A-B,C-D,…". Errors (invalid input): as IterationRange::parse.
Result<std::vector<IterationRange>> parse_ranges(const std::string& text, const std::string& name);

// Enables tracing (base/trace.h) for the calling thread and for threads that it starts later, and
// switches it on and off with the ranges. Those threads must end before the profiler. Not thread
// safe.
class RankProfiler {
 public:
  // trace: null if no trace is written.
  RankProfiler(const ProfileRequest& request, const base::TraceBuffer* trace, int rank);
  ~RankProfiler();
  RankProfiler(const RankProfiler&) = delete;
  RankProfiler& operator=(const RankProfiler&) = delete;

  // To be called at the begin of each iteration.
  void start(int64_t iteration);

 private:
  void switch_external_profiler(bool on);
  void check_answer(const Status& answer);

  std::vector<IterationRange> ranges_;
  int rank_;
  base::TraceSwitch switch_;
  bool on_ = false;
  bool profiler_answers_ = true;  // no call to the external profiler has failed
};

}  // namespace wideep::run
