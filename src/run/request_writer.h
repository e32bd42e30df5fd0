// SPDX-License-Identifier: Apache-2.0
//
// Gives requests to ranks that run: writes the log of commands that every rank follows
// (engine/request_feed.h).
//
//   parent: RequestWriter ──commands──▶ every rank: RequestFeed ──▶ scheduler … ──events──▶ parent
//
//   started ranks, rank 0: RequestWriter ──▶ its RequestFeed ──over the bridge──▶ the other ranks'
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
  // fds: the writing ends of the ranks' feeds, which stay the caller's. num_owners: ranks that have
  // requests of their own; 1: all ranks compute all.
  RequestWriter(const std::vector<int>& fds, int num_owners);

  // Gives it to the owner with the fewest tokens to compute. It begins with that rank's next
  // iteration. REQUIRES: it fits into the cache; its index is new.
  void submit(engine::Request request);
  // Gives them to the owners in turn; all begin in the same iteration on all ranks. RanksIdle tells
  // when they have been answered. REQUIRES: none runs.
  enum class Reports { kAtOnce, kWhenIdle };  // their events: no message disturbs what is measured
  void submit_together(std::vector<engine::Request> requests, Reports reports = Reports::kAtOnce);
  void cancel(int index);

  // From the ranks' next iteration on: whether their records have counts of experts. The event
  // ExpertRecording tells when all have begun, or ended.
  void record_experts(bool records);
  // No request comes any more: the ranks end when all are answered.
  void finish();
  // The ranks end after their current iteration.
  void stop();

  // A request has had its last token.
  void finished(int index);

 private:
  struct Load {
    int owner = 0;
    int64_t tokens = 0;
  };
  void submit_to(int owner, engine::Request request);
  void write(const engine::Command& command);
  void write(engine::Command::Kind kind) { write({.kind = kind, .request = {}}); }
  void take_off(int index);

  std::mutex mutex_;  // guards what follows: commands go to all ranks in one order
  std::vector<std::unique_ptr<transport::MessagePipe>> pipes_;
  std::vector<int64_t> tokens_of_owner_;
  std::unordered_map<int, Load> running_;  // by request index
};

}  // namespace wideep::run
