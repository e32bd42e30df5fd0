// SPDX-License-Identifier: Apache-2.0
//
// Submits requests to running ranks: writes the log of commands that every rank reads
// (engine/request_feed.h).
//
//   forked ranks:   parent: RequestWriter ──pipes──▶ every rank: RequestFeed
//   with launcher:  rank 0: RequestWriter ──pipe──▶ its RequestFeed ──bridge──▶ other RequestFeeds
//
// Where ranks may die, the writer keeps every request and what was answered of it: if the rank that
// computes it dies, another one goes on with it.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/request_feed.h"
#include "group/message_pipe.h"

namespace wideep::run {

class RequestWriter {
 public:
  // What happens to the requests of a rank that dies.
  enum class OnLoss {
    kEnd,     // the run fails
    kMove,    // another owner goes on with them
    kReplay,  // all ranks begin again with all requests
  };
  // num_owners: the number of ranks that have requests of their own; 1: all ranks compute all
  // requests.
  RequestWriter(int num_owners, OnLoss on_loss);
  ~RequestWriter();
  RequestWriter(const RequestWriter&) = delete;
  RequestWriter& operator=(const RequestWriter&) = delete;

  // fd: the end to write of the pipe to the rank, which is owned from now on. joins_later: it gets
  // commands from the change_members() on that names it.
  void add_rank(int rank, int fd, bool joins_later = false);

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
  // No more tokens of the request are wanted, but its experts are. REQUIRES:
  // Request::returns_experts.
  void cut(int index);

  // Whether iteration records contain expert counts, from the ranks' next iteration on. The event
  // ExpertRecording follows when all ranks have begun, or ended, also if others take their places
  // meanwhile.
  void record_experts(bool records);
  // No more requests follow: the ranks end when all are answered.
  void finish();
  // Ends the ranks after their current iteration.
  void stop();

  // To be called with every token of a request.
  void answered(int index, int32_t token, bool is_last);
  // To be called when the experts of a request have come, which ends it. Returns whether they are
  // wanted.
  bool routed(int index);

  // ---- ranks that die and return ----

  struct Loss {
    int moved = 0;            // requests that others go on with
    std::vector<int> failed;  // those that have met too many ranks' own deaths to be tried again
  };
  // A rank has died, and sends nothing more. is_own_fault: it was not killed from outside.
  Loss lose_rank(int rank, bool is_own_fault);
  // Whether that owner has the request now.
  bool is_computed_by(int index, int rank);
  // Owners from this number on get no further requests. They will end; what they compute then moves
  // (lose_rank). Those before it, as far as they are members, get requests again.
  void want(int num_ranks);
  // An epoch has begun, and all its members have said so. Returns how many requests were submitted
  // again.
  int change_members(uint32_t epoch, const std::vector<int>& ranks);

 private:
  struct Pipe;
  struct Running {
    int owner = 0;
    int64_t tokens = 0;
    engine::Request request;  // with what was answered; only if requests are kept
    int own_deaths = 0;       // of ranks that computed it
    bool returns_experts = false;
    // All its tokens have come, but not its experts. Should it be submitted again, its last token
    // is generated again, and with it come the experts.
    bool awaits_experts = false;
  };
  bool keeps() const { return on_loss_ != OnLoss::kEnd; }
  int least_loaded() const;
  int64_t tokens_of(int owner) const;
  void submit_to(int owner, Running running);
  Running* find(int index);
  void write(const engine::Command& command);
  void write(engine::Command::Kind kind) { write({.kind = kind, .request = {}}); }
  void write_recording();
  void end(int index);

  const OnLoss on_loss_;
  std::mutex mutex_;  // guards the members below; all ranks must get the commands in one order
  std::map<int, std::unique_ptr<Pipe>> pipes_, joining_;  // by rank
  engine::CommandEncoder encoder_;
  std::map<int, int64_t> tokens_of_owner_;  // of the owners that may get requests
  std::map<int, Running> running_;          // by request index
  std::vector<Running> orphans_;            // while no owner lives
  std::vector<int> members_;                // of the epoch, as far as they live
  int num_recordings_ = 0;                  // calls of record_experts()
  bool records_experts_ = false, is_stopping_ = false;
};

}  // namespace wideep::run
