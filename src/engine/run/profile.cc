// SPDX-License-Identifier: Apache-2.0
#include "run/profile.h"

#include <algorithm>

#include "base/log.h"
#include "base/nvidia_profiler.h"
#include "base/try.h"

namespace wideep::run {

Result<std::vector<IterationRange>> parse_ranges(const std::string& text, const std::string& name) {
  std::vector<IterationRange> ranges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    WIDEEP_TRY_ASSIGN(const IterationRange range,
                      IterationRange::parse(text.substr(begin, end - begin), name));
    ranges.push_back(range);
    begin = end + 1;
  }
  return ranges;
}

RankProfiler::RankProfiler(const ProfileRequest& request, const base::TraceBuffer* trace, int rank)
    : ranges_(request.ranges), rank_(rank) {
  const bool all_spans = request.marks == Marks::kAllSpans;
  base::trace_of_thread = {
      .rank_switch = &switch_,
      .buffer = trace,
      .marks = request.marks == Marks::kNone ? nullptr : &base::nvtx_marks(all_spans),
      .rank = rank,
      .allocations = request.allocations};
  if (request.writes_trace()) check_answer(base::start_cuda_driver());
}

RankProfiler::~RankProfiler() {
  if (on_) switch_external_profiler(false);
  base::trace_of_thread = {};
}

void RankProfiler::start(int64_t iteration) {
  const bool wanted = std::any_of(ranges_.begin(), ranges_.end(), [&](const IterationRange& range) {
    return range.first <= iteration && iteration < range.last;
  });
  if (wanted != on_) switch_external_profiler(wanted);
  on_ = wanted;
  switch_.set({.iteration = iteration, .on = wanted});
}

void RankProfiler::switch_external_profiler(bool on) {
  if (profiler_answers_)
    check_answer(on ? base::start_nvidia_profiler() : base::stop_nvidia_profiler());
}

// All ranks of a machine get the same answer: only rank 0 logs it.
void RankProfiler::check_answer(const Status& answer) {
  profiler_answers_ = answer.ok();
  if (answer.ok() || rank_ != 0) return;
  log::warn("{}; NVIDIA's profilers do not get the range; the trace file is still written",
            answer.message());
}

}  // namespace wideep::run
