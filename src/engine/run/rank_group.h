// SPDX-License-Identifier: Apache-2.0
//
// The running ranks of a run, for the process that started them: requests go in, events come out.
//
//   WIDEEP_TRY_ASSIGN(const auto group, RankGroup::start(run));
//   group->requests().submit_together(std::move(requests));
//   group->requests().finish();
//   while (const auto event = group->next()) { ... }
//   return group->result();
//
// Without a launcher, start() forks the ranks. If a launcher (mpirun, srun) has started the ranks,
// all of them make these calls: rank 0 receives the events and submits the requests, the others
// receive only StopRequested.
//
// With RunOptions::keeps_ranks, keep() forks the ranks and a process that gets the group as above,
// and starts again ranks that die (group/keeper.h). Over several nodes, keep_node() does that
// for the ranks of each other node.
//
// What RunOptions asks to record of experts is recorded on the way of the events (RunRecorder).
//
// Thread safety: next() and result() belong to one thread; any thread may call the rest.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/service_notifier.h"
#include "group/kept_ranks.h"
#include "group/node_client.h"
#include "group/node_server.h"
#include "run/background_watch.h"
#include "run/event.h"
#include "run/iteration_summary.h"
#include "run/request_writer.h"
#include "run/routed_experts.h"
#include "run/run.h"
#include "run/run_recorder.h"

namespace wideep::run {

struct GroupOptions {
  // true: SIGINT and SIGTERM become events (StopRequested). false: they end the run after the
  // current iteration, and result() is interrupted.
  bool reports_stop_signals = false;
  // true: SIGHUP becomes an event, too (DrainSignal), where this process has started the ranks and
  // has no terminal.
  bool reports_hang_up = false;
};

class RankGroup {
 public:
  // run: loaded; outlives the group. REQUIRES, if ranks are forked: the caller has started no other
  // thread; it may do so once this has returned. Errors: no memory, no processes.
  static Result<std::unique_ptr<RankGroup>> start(const Run& run, GroupOptions options = {});
  // The same with ranks that may die. Calls `use` in a process of its own and returns what it has
  // returned. REQUIRES: the caller has started no other thread.
  // clients: the socket that listens for them, and what keeps their connections
  // (group/keeper.h).
  struct Clients {
    int listener = -1;
    size_t max = 4096;  // connections at once
    std::function<Result<int>(int socket)> companion;
    transport::NodeServer* nodes = nullptr;  // of several; null: there is one
    const base::ServiceNotifier* manager = nullptr;
  };
  static Status keep(const Run& run, const Clients& clients,
                     const std::function<Status(std::unique_ptr<RankGroup>)>& use);
  // On a node other than the first, which starts and ends its ranks as that says.
  // Errors: as NodeClient::run.
  static Result<transport::NodeClient::Ended> keep_node(
      const Run& run, transport::NodeClient& client,
      const std::shared_ptr<transport::SharedMemory>& memory);
  // Of a group that keep() has made; else null.
  transport::KeptRanks* kept() const { return kept_; }
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Waits for the next event; nullopt: all ranks have ended.
  std::optional<Event> next();
  // After next() has returned nullopt: ok, interrupted, or the group's first failure, or that of
  // what was to be recorded.
  Status result();
  // Null: the run has no routing log, or its events go to another process.
  RoutingRecorder* routing_log() { return recorder_ ? recorder_->routing() : nullptr; }

  // Requests may be submitted at once; ranks begin them when all have loaded their weights.
  RequestWriter& requests() { return requests_; }
  // Ends the ranks after their current iteration.
  void stop();
  // Asks for this many ranks of an elastic run with a keeper: others are added, with an event
  // MembersChanged when they compute, or retired, with RankDied (was_expected). Requests go on.
  // Errors (invalid input): the number cannot be had, with the reason; (failed) the checkpoint has
  // changed.
  Status want(int num_ranks);
  // Makes ranks fail that still run when this time is over.
  void end_within(std::chrono::milliseconds grace) { ranks_->end_within(grace); }

 private:
  class Feeds;
  RankGroup(const Run& run, std::unique_ptr<Feeds> feeds,
            std::unique_ptr<transport::RunningRanks> ranks);
  std::optional<Event> take(transport::RankMessage message);
  std::optional<Event> take(transport::StopSignal stop);
  std::optional<Event> take(transport::DrainSignal drain) { return drain; }
  std::optional<Event> take(transport::Ping ping) { return ping; }
  std::optional<Event> take(transport::RankStarted rank);
  std::optional<Event> take(transport::RankDied rank);
  std::optional<Event> merge(int rank, RankEvent event);
  std::optional<Event> merge_change(int rank, MembersChanged change);
  struct NumberedCall {
    std::map<int, int> answers;  // the number that each rank has sent last
    int last = 0;                // that was an event
  };
  // Whether with this answer all members have answered the call, and none was answered so before.
  bool have_all_answered(int rank, int number, NumberedCall& call) const;
  void note_pages(int rank, RankEvent& event);
  std::optional<BackgroundSilence> watch();
  std::optional<Event> next_unrecorded();
  Event take_due();
  void note_transfers();

  // The ranks that have sent an event of which all have to send one; empty again when all have.
  using Senders = std::set<int>;
  bool is_last(int rank, Senders* senders) const;

  const Run& run_;
  std::unique_ptr<Feeds> feeds_;  // outlives the ranks and the writer
  std::unique_ptr<transport::RunningRanks> ranks_;
  transport::KeptRanks* kept_ = nullptr;  // ranks_, if it is one
  RequestWriter requests_;
  std::vector<int> members_;
  Senders ready_, idle_;
  NumberedCall recording_, role_;
  bool has_begun_ = false;  // all ranks were ready
  std::deque<Event> due_;   // to be returned next
  int reloaded_ = 0;        // experts, by the members that have begun the next epoch
  IterationAssembler iterations_;
  BackgroundWatch background_;
  bool iteration_ended_ = false;  // since watch() was called
  RoutedParts routed_;
  std::optional<RunRecorder> recorder_;
};

}  // namespace wideep::run
