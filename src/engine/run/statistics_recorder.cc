// SPDX-License-Identifier: Apache-2.0
#include "run/statistics_recorder.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/try.h"

namespace wideep::run {

StatisticsRecorder::StatisticsRecorder(StatisticsRequest request, ExpertRanks ranks, int64_t next)
    : request_(std::move(request)), recorded_(std::move(ranks)), next_(next) {
  std::error_code absent;
  done_before_ =
      next > 0 && std::filesystem::exists(request_.directory + "/meta_info.json", absent);
  done_ = done_before_;
}

Status StatisticsRecorder::add(const Iteration& iteration) {
  const int64_t number = iteration.ranks[0].iteration;
  next_ = number + 1;
  if (done_) return {};
  if (request_.range.contains(number)) {
    if (recorded_.add(iteration, RecordedExperts::Taken::kAll)) ++num_recorded_;
  }
  return next_ >= request_.range.last ? write() : Status();
}

Status StatisticsRecorder::finish() { return done_ ? Status() : write(); }

Status StatisticsRecorder::write() {
  done_ = true;
  if (recorded_.empty()) return {};
  first_ = recorded_.first();
  last_ = recorded_.last();
  const Status written = recorded_.write(request_.directory);
  recorded_.clear();
  return written;
}

std::string StatisticsRecorder::missing(const std::string& why) const {
  const IterationRange& range = request_.range;
  if (done_before_ || num_recorded_ >= range.last - range.first) return {};
  const std::string what = "expert statistics of iterations " + range.text();
  if (num_recorded_ == 0) {
    return fmt::format("{}: {} {} iterations, none is recorded", what, why, next_);
  }
  const bool is_whole = num_recorded_ == last_ + 1 - first_;
  const std::string found =
      is_whole ? fmt::format("{}-{}", first_, last_ + 1) : fmt::format("{} of them", num_recorded_);
  const std::string recorded = fmt::format("{} are recorded in {}", found, request_.directory);
  if (next_ < range.last)
    return fmt::format("{}: {} {} iterations, {}", what, why, next_, recorded);
  return fmt::format("{}: {}; the others were lost with a process that died", what, recorded);
}

}  // namespace wideep::run
