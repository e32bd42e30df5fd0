// SPDX-License-Identifier: Apache-2.0
//
// Which iterations of a run are traced, where to, and what a profiler outside is told.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"
#include "run/statistics_recorder.h"

namespace wideep::run {

enum class Marks { kNone, kIterations, kAllSpans };

struct ProfileRequest {
  std::string path;                    // of the Chrome trace
  std::vector<IterationRange> ranges;  // empty: marks alone, in every iteration
  bool allocations = false;            // of the forward thread, in the trace too
  Marks marks = Marks::kNone;          // NVTX; REQUIRES (others): built with CUDA

  bool writes_trace() const { return !ranges.empty(); }
};

// From "A-B" or "A-B,C-D,…". Errors (invalid input): as IterationRange::parse.
Result<std::vector<IterationRange>> parse_ranges(const std::string& text, const std::string& name);

// Makes the calling thread record, and those that it starts from then on and that record beside it
// (base/trace.h), which end before this does; switches them all on and off. One thread.
class RankProfiler {
 public:
  // trace: null where none is written.
  RankProfiler(const ProfileRequest& request, const base::TraceBuffer* trace, int rank);
  ~RankProfiler();
  RankProfiler(const RankProfiler&) = delete;
  RankProfiler& operator=(const RankProfiler&) = delete;

  // The iteration begins now.
  void start(int64_t iteration);

 private:
  void tell_profiler(bool begins);
  void note(const Status& told);

  std::vector<IterationRange> ranges_;
  int rank_;
  base::TraceSwitch switch_;
  bool on_ = false;
  bool profiler_answers_ = true;  // so far
};

}  // namespace wideep::run
