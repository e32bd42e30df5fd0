// SPDX-License-Identifier: Apache-2.0
//
// Submits requests to running ranks: writes the log of commands that every rank reads
// (engine/request_feed.h).
//
//   forked ranks:   parent: RequestWriter ──pipes──▶ every rank: RequestFeed
//   with launcher:  rank 0: RequestWriter ──pipe──▶ its RequestFeed ──bridge──▶ other RequestFeeds
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/request_feed.h"
#include "transport/rank_processes.h"

namespace wideep::run {

class RequestWriter {
 public:
  // fds: the writing ends of the pipes, owned by the caller. num_owners: the number of ranks that
  // have requests of their own; 1: all ranks compute all requests.
  RequestWriter(const std::vector<int>& fds, int num_owners);

  // Submits to the owner with the fewest tokens to compute, which begins it in its next iteration.
  // REQUIRES: the request fits into the cache; its index is new.
  void submit(engine::Request request);
  // kWhenIdle: ranks buffer their events until all requests are answered, so that no message
  // disturbs a measurement.
  enum class Reports { kAtOnce, kWhenIdle };
  // Submits to the owners in turn; all requests begin in the same iteration on all ranks. The event
  // RanksIdle follows when all are answered. REQUIRES: no request is running.
  void submit_together(std::vector<engine::Request> requests, Reports reports = Reports::kAtOnce);
  void cancel(int index);

  // Whether iteration records contain expert counts, from the ranks' next iteration on. The event
  // ExpertRecording follows when all ranks have begun, or ended.
  void record_experts(bool records);
  // No more requests follow: the ranks end when all are answered.
  void finish();
  // Ends the ranks after their current iteration.
  void stop();

  // To be called with the last token of a request.
  void finished(int index);

 private:
  struct Load {
    int owner = 0;
    int64_t tokens = 0;
  };
  void submit_to(int owner, engine::Request request);
  void write(const engine::Command& command);
  void write(engine::Command::Kind kind) { write({.kind = kind, .request = {}}); }
  void subtract_load(int index);

  std::mutex mutex_;  // guards the members below; all ranks must get the commands in one order
  std::vector<std::unique_ptr<transport::MessagePipe>> pipes_;
  engine::CommandEncoder encoder_;
  std::vector<int64_t> tokens_of_owner_;
  std::unordered_map<int, Load> running_;  // by request index
};

}  // namespace wideep::run
