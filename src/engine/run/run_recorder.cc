// SPDX-License-Identifier: Apache-2.0
#include "run/run_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "base/log.h"

namespace wideep::run {

RunRecorder::RunRecorder(const Run& run, int64_t next) : keeps_ranks_(run.options().keeps_ranks) {
  const RunOptions& options = run.options();
  const auto note_loss = [&](const char* what, const IterationRange& range, bool was_done) {
    if (was_done || next <= range.first) return;
    log::warn("{}: the process that recorded has died: iterations {}-{} are lost", what,
              range.first, std::min(next, range.last));
  };
  if (options.statistics) {
    statistics_.emplace(*options.statistics, run.plan().experts, next);
    note_loss("expert statistics", options.statistics->range, statistics_->was_done_before());
  }
  if (options.routing_log) {
    routing_.emplace(run, next);
    const IterationRange all{.first = 0, .last = std::numeric_limits<int64_t>::max()};
    note_loss("routing log", options.routing_log->range.value_or(all), routing_->was_done_before());
  }
}

void RunRecorder::add(const Event& event) {
  if (finished_) return;
  std::visit(
      [this](const auto& each) {
        if constexpr (requires { take(each); }) take(each);
      },
      event);
}

void RunRecorder::take(const Iteration& iteration) {
  if (statistics_) note(statistics_->add(iteration));
  if (routing_) note(routing_->add(iteration));
}

void RunRecorder::take(const Rebalance& rebalance) {
  if (routing_) note(routing_->add(rebalance));
}

void RunRecorder::take(const RequestCounts& counts) {
  if (routing_) note(routing_->add(counts));
}

// A server goes on, so whoever waits for the files must be told now. Others return the error.
void RunRecorder::note(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  if (keeps_ranks_) log::warn("{}; serving goes on", status.message());
}

void RunRecorder::finish(const Status& ended) {
  if (finished_) return;
  finished_ = true;
  if (statistics_) note(statistics_->finish());
  if (routing_) note(routing_->finish());
  if (!status_.ok()) return;
  const std::string why = ended.ok() ? "the run had only" : "the run ended early, after";
  for (const std::string& line : {statistics_ ? statistics_->missing(why) : std::string(),
                                  routing_ ? routing_->missing(why) : std::string()}) {
    if (!line.empty()) log::warn("{}", line);
  }
}

}  // namespace wideep::run
