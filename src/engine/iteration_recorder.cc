// SPDX-License-Identifier: Apache-2.0
#include "engine/iteration_recorder.h"

#include <algorithm>
#include <utility>

#include "base/cpu_time.h"

namespace wideep::engine {

void IterationRecorder::begin(int64_t iteration, std::span<Sequence* const> owners) {
  record_ = {.iteration = iteration};
  owners_ = owners;
  start_ns_ = base::wall_ns();
  last_mark_cpu_ns_ = busy_cpu_ns();
}

void IterationRecorder::on_layer(const model::MoeLayerRecord& layer) {
  const int64_t now = busy_cpu_ns();
  LayerRecord record;
  record.experts_cpu_ns = layer.experts_cpu_ns;
  record.other_cpu_ns = now - last_mark_cpu_ns_ - layer.experts_cpu_ns;
  record.sent.resize(static_cast<size_t>(stage_.num_ranks()));
  std::copy(layer.sent_entries.begin(), layer.sent_entries.end(),
            record.sent.begin() + dispatch_ranks_.begin);
  record.counts.assign(layer.counts.begin(), layer.counts.end());
  if (online_ != nullptr) {
    online_->add_counts(static_cast<int>(record_.layers.size()), layer.group_counts);
  }
  if (speculation_ != nullptr && speculation_->is_adaptive()) {
    speculation_->add_counts(static_cast<int>(record_.layers.size()), layer.group_counts);
  }
  record_.layers.push_back(std::move(record));
  // Each rank of a tensor group reports its own part of the batch's tokens.
  const ep::TokenRange own = model_.group().tokens(static_cast<int>(owners_.size()));
  reporter_.chosen({layer.layer, record_.iteration, layer.experts, layer.counts, layer.group_counts,
                    owners_.subspan(own.begin, own.size)});
  last_mark_cpu_ns_ = busy_cpu_ns();  // reporting is not part of the next layer
}

IterationRecord& IterationRecorder::end() {
  record_.tail_cpu_ns = busy_cpu_ns() - last_mark_cpu_ns_;
  record_.end_ns = base::wall_ns();
  record_.wall_ns = record_.end_ns - start_ns_;
  return record_;
}

// Processor time on this rank's critical path. Waits for other ranks burn processor time too and
// are subtracted; lag_cpu_ns() adds what the busiest pool thread needed beyond this one.
int64_t IterationRecorder::busy_cpu_ns() const {
  return base::thread_cpu_ns() - stage_.waited_cpu_ns() + compute_.pool().lag_cpu_ns();
}

}  // namespace wideep::engine
