// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a run while they run, for the process that started them: requests go in, events come
// out.
//
//   WIDEEP_TRY_ASSIGN(const auto group, RankGroup::start(run));
//   group->requests().submit_together(std::move(requests));
//   group->requests().finish();
//   while (const auto event = group->next()) { ... }
//   return group->result();
//
// Forked ranks: every started group forks them anew. Ranks that a launcher has started: all of them
// call the same; rank 0 hears the events and gives the requests, the others hear StopAsked only.
//
// Thread safety: next() and result() belong to one thread, the rest may be called by any.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "run/event.h"
#include "run/iteration_summary.h"
#include "run/request_writer.h"
#include "run/run.h"
#include "transport/running_ranks.h"

namespace wideep::run {

struct GroupOptions {
  // SIGINT and SIGTERM are events (StopAsked) instead of ending the run after the current
  // iteration, as interrupted.
  bool reports_stop_signals = false;
};

class RankGroup {
 public:
  // run: loaded; outlives the group. REQUIRES, where ranks are forked: the caller has started no
  // other thread; it may do so once this has returned. Errors: no memory, no processes.
  static Result<std::unique_ptr<RankGroup>> start(const Run& run, GroupOptions options = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Waits for the next event; nothing: all ranks have ended.
  std::optional<Event> next();
  // Once next() has returned nothing: ok, interrupted, or the group's first failure.
  Status result();

  // Requests may be given at once; ranks begin with them when all have their weights.
  RequestWriter& requests() { return requests_; }
  // The ranks end after their current iteration.
  void stop();
  // Ranks that still run when this time is over are made to fail.
  void end_within(std::chrono::milliseconds grace) { ranks_->end_within(grace); }

 private:
  class Feeds;
  RankGroup(const Run& run, std::unique_ptr<Feeds> feeds,
            std::unique_ptr<transport::RunningRanks> ranks);
  std::optional<Event> event_of(int rank, RankSaying saying);
  bool is_last_of(int* count) const;

  const Run& run_;
  std::unique_ptr<Feeds> feeds_;  // outlive the ranks and the writer
  std::unique_ptr<transport::RunningRanks> ranks_;
  RequestWriter requests_;
  // What some ranks have said and others not yet.
  int num_ready_ = 0, num_recording_ = 0, num_idle_ = 0;
  IterationAssembler iterations_;
};

}  // namespace wideep::run
