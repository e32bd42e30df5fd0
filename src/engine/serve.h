// SPDX-License-Identifier: Apache-2.0
//
// An engine that runs until it is told to stop, and takes requests meanwhile: the side of the
// parent of ranks forked on this machine, or, where a launcher has started the ranks, of rank 0.
// What speaks HTTP over it is src/server.
//
//   parent: RequestWriter ──commands──▶ every rank: RequestFeed ──▶ scheduler … ──tokens──▶ parent
//
//   rank 0: RequestWriter ──commands──▶ its RequestFeed ──over the bridge──▶ the other ranks' …
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/load_collector.h"
#include "engine/rank_run.h"
#include "engine/request_feed.h"
#include "transport/rank_processes.h"
#include "wideep/status.h"

namespace wideep::engine {

// Tells every rank of every request, in one order, or rank 0, which passes it on.
//
// Thread safety: any thread.
class RequestWriter {
 public:
  // fds: the writing ends of the ranks' feeds, which stay the caller's. num_owners: ranks that have
  // requests of their own; 1: all ranks compute all.
  RequestWriter(const std::vector<int>& fds, int num_owners,
                std::shared_ptr<transport::SharedMemory> memory);

  // Gives it to the owner with the fewest tokens to compute. REQUIRES: it fits into the cache; its
  // index is new.
  void submit(Request request);
  void cancel(int index);
  // From the ranks' next iteration on: whether their iteration records have counts of experts.
  // ServeObserver::on_record_experts tells when all have begun, or ended.
  void record_experts(bool records);
  // Ranks end after their current iteration.
  void stop();

  // Of serve(): the request has had its last token.
  void finished(int index);

 private:
  struct Load {
    int owner = 0;
    int64_t tokens = 0;
  };
  void tell(const Command& command);
  void take_off(int index);

  std::shared_ptr<transport::SharedMemory> memory_;
  std::mutex mutex_;  // guards what follows: commands go to all ranks in one order
  std::vector<std::unique_ptr<transport::MessagePipe>> pipes_;
  std::vector<int64_t> tokens_of_owner_;
  std::unordered_map<int, Load> running_;  // by request index
};

// Of started ranks those of rank 0 only, but for on_stop. Called on the thread that serves, of
// started ranks on one that hears from them, on_stop on a third. Each may be empty.
struct ServeObserver {
  std::function<void(const std::string&)> on_plan;
  std::function<void(uint64_t done, uint64_t all)> on_loading;
  // All ranks have their weights: requests may be written. The caller may start threads from here
  // on. A status that is not ok ends the run.
  std::function<void(RequestWriter&)> on_ready;
  std::function<void(const TokenMessage&)> on_token;
  std::function<void(int rank, const IterationRecord&)> on_iteration;
  std::function<void(const IterationSummary&)> on_summary;  // of all ranks
  std::function<void(const online::Rebalance&)> on_rebalance;
  // All ranks have begun to record experts, or ended it: every iteration with counts has been told.
  std::function<void(bool records)> on_record_experts;
  // SIGINT or SIGTERM, once ranks are ready: within the time returned somebody calls
  // RequestWriter::stop.
  std::function<std::chrono::milliseconds(int signal)> on_stop;
  // The ranks have ended, after on_ready: the RequestWriter goes when this returns.
  std::function<void()> on_ended;
};

// Reads and checks everything, so that what can be wrong is told before a port is bound or weights
// are loaded. options outlive it. Collective of started ranks. Errors (invalid input, failed): as
// generate.
Result<std::unique_ptr<Run>> prepare_to_serve(const RunOptions& options);

// Tokens that a prompt and its answer may have together: the model's and the cache's.
int max_sequence(const Run& run);

// Who tells what of experts in iteration records.
struct ExpertRanks {
  int stage_size = 0;  // ranks of a pipeline stage, which are neighbours
  struct Rank {
    std::vector<int> moe_layers;  // ascending; what IterationRecord::layers are
    int file = 0;                 // of its expert statistics
  };
  std::vector<Rank> ranks;
  recordings::StatisticsShape statistics;
};
ExpertRanks expert_ranks(const Run& run);

// Runs until it is stopped: ok; or a rank has failed. Collective of started ranks. REQUIRES: the
// caller has started no thread.
Status serve(Run& run, const ServeObserver& observer);

}  // namespace wideep::engine
