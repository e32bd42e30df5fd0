// SPDX-License-Identifier: Apache-2.0
//
// Which iterations of a run are traced, and where to.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"
#include "engine/statistics_recorder.h"

namespace wideep::engine {

struct ProfileRequest {
  std::string path;  // of the Chrome trace
  std::vector<IterationRange> ranges;
};

// From "A-B" or "A-B,C-D,…". Errors (invalid input): as IterationRange::parse.
Result<std::vector<IterationRange>> parse_ranges(const std::string& text, const std::string& name);

// Switches the calling thread's trace on and off. One thread.
class RankProfiler {
 public:
  RankProfiler(const ProfileRequest& request, const base::TraceBuffer& trace, int rank)
      : ranges_(request.ranges), recorder_{.buffer = &trace, .rank = rank} {}
  ~RankProfiler() { base::trace_of_thread = nullptr; }
  RankProfiler(const RankProfiler&) = delete;
  RankProfiler& operator=(const RankProfiler&) = delete;

  // The iteration begins now.
  void start(int64_t iteration);

 private:
  std::vector<IterationRange> ranges_;
  base::TraceRecorder recorder_;
};

}  // namespace wideep::engine
