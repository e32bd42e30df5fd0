// SPDX-License-Identifier: Apache-2.0
#include "run/statistics_recorder.h"

namespace wideep::run {

StatisticsRecorder::StatisticsRecorder(const StatisticsRequest& request, int rank,
                                       recordings::StatisticsShape shape)
    : range_(request.range), writer_(request.directory, rank, shape) {}

Status StatisticsRecorder::add(int64_t iteration, int layer, std::span<const int32_t> counts) {
  if (written_) return {};
  if (iteration != pending_iteration_) {
    commit();  // ranks agree on every iteration, so all of them have finished the previous one
    pending_iteration_ = iteration;
    // Written as soon as the range is complete, so that a later failure of the run cannot lose it.
    if (iteration >= range_.last) return write();
  }
  if (iteration >= range_.first)
    pending_.emplace_back(layer, std::vector<int64_t>(counts.begin(), counts.end()));
  return {};
}

void StatisticsRecorder::commit() {
  for (const auto& [layer, counts] : pending_) {
    writer_.add(static_cast<int>(pending_iteration_), layer, counts);
  }
  if (!pending_.empty()) ++num_recorded_;
  pending_.clear();
}

Status StatisticsRecorder::finish(bool all_finished) {
  if (written_) return {};
  if (all_finished) commit();
  return write();
}

Status StatisticsRecorder::write() {
  written_ = true;
  return num_recorded_ > 0 ? writer_.write() : Status();
}

}  // namespace wideep::run
