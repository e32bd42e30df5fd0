// SPDX-License-Identifier: Apache-2.0
//
// Requests whose prompts are looked for where pages are kept, before they are submitted: what is
// said to the ranks that compute them, and when (engine/page_store.h).
//
//   begin ── kLook ──▶ looking ── all have answered ──▶ is there more than the caches know, and is
//                                                       it cheaper to fetch than to compute?
//                                 no:  kAbandon, kSubmit
//                                 yes: kFetch ──▶ fetching ── all have answered ──▶ kImport, kSubmit
//
// All ranks that compute a request must find the same pages, so what the least of them has counts.
// If the model keeps states, only a number of pages counts after which all that keep states have
// theirs.
//
// A request never waits longer than its deadline: then it is submitted without. Ranks hear commands
// between iterations, and answer one after the other, so deadlines follow what iterations take and
// what an owner has yet to fetch, from its last answer on. Where one has passed, later requests of
// the owner do not wait for a while, unless an answer comes. Of what is given up, ranks are told
// (kAbandon). After a kFetch there is always exactly one kImport, when all ranks have answered that
// still live: with 0 pages, if the request does not wait any more.
//
// What a peer computes at present, or has (PagesFound::is_promised), is fetched whatever that takes:
// who has sent the request here has decided. Such a fetch goes on as long as ranks say that it does
// (PagesArriving). If the cache has no room for what a peer computes, the request is looked for
// again after a pause, as others are about to end: computing it here, too, would be for nothing.
//
// Ranks are not trusted with numbers: what is not known is ignored, and pages are cut to those of
// the prompt. The page of its last token is never fetched, as that is computed anyway.
//
// No input or output; time is what `clock` says, in seconds, and steady.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/command.h"
#include "run/event.h"
#include "run/prefill_price.h"

namespace wideep::run {

// Of requests, since the process began.
struct FetchCounts {
  uint64_t looked = 0;
  uint64_t fetched_requests = 0;
  uint64_t fetched_tokens = 0;     // that caches did not know
  uint64_t refused_as_dearer = 0;  // computing is cheaper
  uint64_t gave_up = 0;            // too slow, no room, or it was not there any more
  // Of computing, less those of waiting, as far as measured. A fetch that took longer lowers it.
  // Without those from peers, which compute as long themselves.
  double saved_seconds = 0.0;
};

// Requests that wait at present for pages of a peer, or for room for them.
struct PeerWaits {
  int64_t requests = 0;
  int64_t pages = 0;  // of these that have come, as ranks have said last: more than caches knew
};

class PromptFetches {
 public:
  using Kind = engine::Command::Kind;
  using Clock = std::function<double()>;

  // A command to the ranks of an owner: kLook, kFetch, kAbandon, kImport, kSubmit.
  struct Step {
    Kind kind = Kind::kSubmit;
    int owner = 0;
    int index = 0;        // kLook, kSubmit: of the request
    uint64_t ticket = 0;  // of the look
    int num_pages = 0;    // kFetch, kImport: first pages of the prompt; kSubmit: likewise, fetched
    bool operator==(const Step&) const = default;
  };
  using Steps = std::vector<Step>;

  // first_ticket: larger than that of any look that another process has made of these ranks.
  PromptFetches(uint64_t first_ticket, Clock clock);

  struct Prompt {
    int index = 0;  // of a request that does not wait
    int owner = 0;
    std::vector<int> ranks = {};  // that compute it and live; at least one
    size_t num_tokens = 0;
    bool tells_transfer = false;  // a PromptTransfer is wanted
    bool peer_computes = false;   // what is promised: it need not be computed here, but for room
  };
  Steps begin(const Prompt& prompt);
  // Whether there is a page to look for.
  static bool is_worth_a_look(size_t prompt_tokens) { return most_pages(prompt_tokens) > 0; }

  Steps found(const PagesFound& answer);
  void arriving(const PagesArriving& answer);
  Steps fetched(const PagesFetched& answer);
  // What is past its deadline is given up, what has paused is looked for again. To be called often:
  // deadlines move while an iteration goes on.
  Steps expire();
  // Of requests that were told to be submitted since the last call.
  std::vector<PromptTransfer> take_transfers() { return std::exchange(transfers_, {}); }

  // The request does not wait here any more: it was cancelled, or goes elsewhere.
  Steps release(int index);
  // The ranks of this owner have ended: whoever waited does not wait any more.
  void drop_owner(int owner);
  // A rank has ended, and its owner's others go on: it is not waited for.
  Steps lose_rank(int rank);
  // All ranks forget what was asked, and nobody waits.
  void clear() {
    looks_.clear();
    paused_.clear();
    answers_.clear();
  }
  // Ranks hear commands from now on: waits that began before begin now, and silence is forgiven.
  // Nothing is past its deadline before the first call.
  void ranks_ready() {
    ready_at_ = clock_();
    answers_.clear();
  }

  void iteration_ended(const Iteration& iteration);
  // Whether the ranks have requests to compute.
  void set_busy(bool busy) { pace_.set_busy(busy, clock_()); }

  const FetchCounts& counts() const { return counts_; }
  PeerWaits peer_waits() const;

 private:
  static constexpr int kNobody = -1;
  // Of a request that does not find room.
  struct Patience {
    double since = 0.0;  // the first time
    double pause = 0.0;  // the last one; 0: there was none
  };
  // What a rank has said last of pages that arrive.
  struct Heard {
    double at = 0.0;
    int pages = 0;
  };
  // What was asked for a prompt, and what was answered so far.
  struct Look {
    Prompt prompt;  // index: of the request that waits, or kNobody
    Patience patience = {};
    std::set<int> awaited;  // of its ranks
    int max_pages = 0;
    double looked_at = 0.0, asked_at = 0.0;
    bool fetches = false;
    // kLook
    int known = 0, found = 0;                    // the least of all ranks
    bool is_promised = false;                    // to any rank
    double seconds_per_page = 0.0;               // the most of all ranks
    std::optional<std::vector<int32_t>> states;  // that all ranks with states have
    // kFetch
    int wanted = 0, pages = 0;  // asked for; the least that a rank has got
    bool has_room = true;
    double predicted = 0.0;           // seconds
    std::map<int, Heard> heard = {};  // by rank
    PeerPages from_peer = {};

    bool is_waited_for() const { return prompt.index != kNobody; }
  };
  // Until it is looked for again.
  struct Paused {
    Prompt prompt;
    Patience patience;
    double until = 0.0;
  };
  using Looks = std::map<uint64_t, Look>;
  // Of an owner.
  struct Answers {
    double last_at = 0.0;
    double none_before =
        0.0;  // too late for the last deadline: nobody is to wait again before this
  };

  static int most_pages(size_t prompt_tokens);
  Steps look_for(const Prompt& prompt, const Patience& patience);
  static void note(Look& look, const PagesFound& answer);
  static void note(Look& look, const PeerPages& more);
  Looks::iterator awaiting(uint64_t ticket, int rank, bool fetches);
  Steps settle(Looks::iterator look);
  Steps decide(Looks::iterator look);
  Steps fetch(Looks::iterator look);
  Steps import(Looks::iterator look);
  Steps abandon(Looks::iterator look);
  Steps submit_without(Looks::iterator look, std::string_view trouble);
  Steps give_up(Looks::iterator look, std::string_view trouble);
  Steps lack_room(Looks::iterator look);
  bool pause(const Look& look);
  void tell_transfer(const Look& look, int pages, std::string_view trouble);
  void count_import(const Look& look, int pages);
  std::map<int, double> seconds_to_fetch() const;
  static std::optional<double> heard_at(const Look& look);
  double deadline_of(const Look& look, double to_fetch) const;

  Clock clock_;
  Looks looks_;                   // by ticket
  std::map<int, Paused> paused_;  // by request
  std::vector<PromptTransfer> transfers_;
  std::map<int, Answers> answers_;  // by owner
  uint64_t next_ticket_;
  PrefillPrice price_;
  IterationPace pace_;
  std::optional<double> ready_at_;
  FetchCounts counts_;
};

}  // namespace wideep::run
