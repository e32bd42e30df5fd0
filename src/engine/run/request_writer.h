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
// Where pages of prompts are kept beyond the caches, a request waits until its pages were looked
// for, and fetched if that pays (run/prompt_fetches.h). So does one whose prompt a peer computes.
// It has an owner then, as a running one has, and what ends, moves or repeats a running request
// does the same with one that waits.
//
// Thread safety: any thread. What waits has deadlines, which a thread of the writer keeps. It begins
// with the first request that is looked for, so that processes can be forked before.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine/request_feed.h"
#include "group/message_pipe.h"
#include "run/event.h"
#include "run/page_places.h"
#include "run/prompt_fetches.h"

namespace wideep::run {

class RequestWriter {
 public:
  // What happens to the requests of a rank that dies.
  enum class OnLoss {
    kEnd,     // the run fails
    kMove,    // another owner goes on with them
    kReplay,  // all ranks begin again with all requests
  };
  // How prompts are found where they are kept.
  struct Prompts {
    // Requests are looked for before they are submitted.
    bool are_kept = false;
    // Those with a peer are (engine::Request::peer), also where none are kept.
    bool may_come_from_peers = false;
    // [owners, also of those that join later] the ranks that compute its requests. An owner that is
    // not there computes them alone.
    std::vector<std::vector<int>> ranks_of_owner = {};
    // Of the pages' names; "": they have none, and no owner is preferred for what it knows.
    std::string record_class = {};
    // For tests: seconds, steady.
    PromptFetches::Clock clock = steady_seconds;
  };
  // num_owners: the number of ranks that have requests of their own; 1: all ranks compute all
  // requests.
  RequestWriter(int num_owners, OnLoss on_loss) : RequestWriter(num_owners, on_loss, Prompts()) {}
  RequestWriter(int num_owners, OnLoss on_loss, Prompts prompts);
  ~RequestWriter();
  RequestWriter(const RequestWriter&) = delete;
  RequestWriter& operator=(const RequestWriter&) = delete;

  // fd: the end to write of the pipe to the rank, which is owned from now on. joins_later: it gets
  // commands from the change_members() on that names it.
  void add_rank(int rank, int fd, bool joins_later = false);

  // Submits to the owner for which it costs the least (run/page_places.h), which begins it in its
  // next iteration, or when its pages were looked for. REQUIRES: the request fits into the cache;
  // its index is new.
  void submit(engine::Request request);
  // kWhenIdle: ranks buffer their events until all requests are answered, so that no message
  // disturbs a measurement.
  enum class Reports { kAtOnce, kWhenIdle };
  // Submits to the owners in turn; all requests begin in the same iteration on all ranks, and are
  // not looked for. The event RanksIdle follows when all are answered. REQUIRES: no request is
  // running.
  void submit_together(std::vector<engine::Request> requests, Reports reports = Reports::kAtOnce);
  void cancel(int index);
  // No more tokens of the request are wanted, but its experts are. REQUIRES:
  // Request::returns_experts.
  void cut(int index);

  // Whether iteration records contain expert counts, from the ranks' next iteration on. The event
  // ExpertRecording follows when all ranks have begun, or ended, also if others take their places
  // meanwhile.
  void record_experts(bool records);
  // What the ranks prefer from their next iteration on. The event RoleSeen with this number follows
  // when all have heard it, also if others take their places meanwhile.
  int change_role(engine::Role role);
  // Where ranks of other nodes offer the pages that they compute (engine::PageStore::offer_to); "":
  // nowhere any more. Whatever the role: of a server that prefers to decode others want the answers,
  // when a conversation goes on. Told when all ranks have loaded, and to those that take their
  // places. REQUIRES: no rank has said yet that it has loaded.
  void offer_pages_to(std::string front);
  // No more requests follow: the ranks end when all are answered, also those that wait.
  void finish();
  // Ends the ranks after their current iteration.
  void stop();

  // To be called with every token of a request.
  void answered(int index, int32_t token, bool is_last);
  // To be called when the experts of a request have come, which ends it. Returns whether they are
  // wanted.
  bool routed(int index);

  // ---- pages that are kept (engine/page_store.h) ----

  // All ranks have loaded their weights, and hear commands from now on.
  void ranks_ready();
  void found(const PagesFound& answer);
  void arriving(const PagesArriving& answer);
  void fetched(const PagesFetched& answer);
  // Of requests with a peer that were submitted since the last call: to be told before what the
  // ranks have said since.
  std::vector<PromptTransfer> take_transfers();
  void pages_changed(const PagesChanged& changed);
  // What computing costs follows from iterations.
  void iteration_ended(const Iteration& iteration);
  FetchCounts fetch_counts();
  PeerWaits peer_waits();

  // Since when the ranks have had requests without a break, in seconds of Prompts::clock; nullopt:
  // they have none. What waits for its pages is none of theirs yet.
  std::optional<double> computes_since();

  // ---- ranks that die and return ----

  struct Loss {
    int moved = 0;            // requests that others go on with
    std::vector<int> failed;  // those that have met too many ranks' own deaths to be tried again
  };
  // A rank has died, and sends nothing more. is_own_fault: it was not killed from outside.
  Loss lose_rank(int rank, bool is_own_fault);
  // Whether that owner has the request now, as far as it was submitted.
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
    int64_t known_tokens = 0;  // of its prompt, that the owner likely need not compute
    engine::Request request;   // with what was answered; only if requests are kept, or it waits
    int own_deaths = 0;        // of ranks that computed it
    bool returns_experts = false;
    // All its tokens have come, but not its experts. Should it be submitted again, its last token
    // is generated again, and with it come the experts.
    bool awaits_experts = false;
  };
  using Requests = std::map<int, Running>;  // by request index
  bool keeps() const { return on_loss_ != OnLoss::kEnd; }
  bool is_looked_for(const engine::Request& request) const;
  PagePlaces::Choice choose(const engine::Request& request) const;
  int64_t tokens_of(int owner) const;
  // To an owner, looked for first if that may pay; to the orphans, if nobody lives.
  void place(Running running);
  void look_for(int owner, std::vector<int> ranks, Running running);
  void begins_to_compute();
  void add_orphan(Running running);
  void submit_to(int owner, Running running);
  void assign(int owner, Running& running);
  Running take(Requests& from, Requests::iterator which);
  template <typename Wanted>
  std::vector<Running> take_all(Requests& from, Wanted wanted);
  bool has_owner(const Running& running) const { return tokens_of_owner_.contains(running.owner); }
  std::vector<int> living_ranks_of(int owner) const;
  int owner_of_rank(int rank) const;
  std::vector<int> count_own_death(int rank);
  std::vector<Running> begin_again();
  void follow(const PromptFetches::Steps& steps);
  void submit_looked_for(const PromptFetches::Step& step);
  void finish_if_none_waits();
  void keep_deadlines(const std::stop_token& stop);
  Running* find(int index);
  void write(const engine::Command& command);
  void write(engine::Command::Kind kind) { write({.kind = kind, .request = {}}); }
  void write_recording();
  void write_role();
  void write_offers();
  void end(int index);

  static double steady_seconds();

  const OnLoss on_loss_;
  const Prompts prompts_;
  std::mutex mutex_;  // guards the members below; all ranks must get the commands in one order
  std::map<int, std::unique_ptr<Pipe>> pipes_, joining_;  // by rank
  engine::CommandEncoder encoder_;
  std::map<int, int64_t> tokens_of_owner_;  // of the owners that may get requests
  Requests running_;
  Requests waiting_;              // for what fetches_ does; each of them has a ticket there
  std::vector<Running> orphans_;  // while no owner lives
  double computes_since_ = 0;     // while running_ or orphans_ has any
  std::vector<int> members_;      // of the epoch, as far as they live
  std::set<int> lost_;            // ranks, until they are members again
  PromptFetches fetches_;
  PagePlaces places_;
  int num_recordings_ = 0;  // calls of record_experts()
  int num_roles_ = 0;       // calls of change_role()
  engine::Role role_ = engine::Role::kBoth;
  std::optional<std::string> offers_to_;  // nullopt: ranks are not told
  bool records_experts_ = false, is_stopping_ = false;
  bool finishes_ = false;  // kFinish is to be written when none waits
  std::condition_variable_any begins_to_wait_;
  std::jthread deadlines_;  // last: it uses everything above
};

}  // namespace wideep::run
