// SPDX-License-Identifier: Apache-2.0
//
// The events of a run: one stream, in order of arrival, which the process that started the ranks
// pulls from RankGroup::next() (run/rank_group.h).
//
//   rank: Reporter → RankEvent ──Messenger──▶ RankGroup: merges the ranks' events → Event
//
// Thread safety: plain values; pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "group/running_ranks.h"
#include "online/online_balancer.h"
#include "residency/residency_counts.h"
#include "run/background_watch.h"
#include "schedule/page_changes.h"
#include "schedule/role.h"
#include "store/place.h"

namespace wideep::run {

// Traffic from a rank, or from all ranks, to other nodes.
struct NodeTraffic {
  int64_t dispatched_rows = 0;  // the least that must cross: one per (token, node, layer)
  int64_t dispatched_bytes = 0;
  // The least number of results that must come back: one per (token, expert, layer), or with a
  // reduced combine one per (token, node, layer).
  int64_t returned_rows = 0;
  int64_t returned_bytes = 0;
  int64_t other_bytes = 0;  // counts, flags, rows of a pipeline, plans

  void add(const NodeTraffic& other);
};

// ---- events ----

// A rank has read this many more bytes of weights.
struct WeightsRead {
  uint64_t bytes = 0;
};
// All ranks have loaded their weights and accept requests.
struct RanksReady {};
// After a rank has died or returned: those that compute now (group/members.h). All that they
// sent before has been an event already.
struct MembersChanged {
  uint32_t epoch = 0;
  std::vector<int> ranks;
  int reloaded = 0;  // experts brought into slots: of one rank, or of all
  int replayed = 0;  // requests that were submitted again
};
// Only with RunOptions::keeps_ranks: a rank's process has been started again, or has ended.
struct RankStarted {
  int rank = 0;
};
struct RankDied {
  int rank = 0;
  std::string how;
  bool was_expected = false;  // it was asked to end
  int moved = 0;              // requests that others go on with
  std::vector<int> failed;    // requests that nobody will go on with
};
// What a request's FinishReason::kNotNumbers means, for its user.
inline constexpr std::string_view kNotNumbersMessage =
    "the model has computed logits that are no numbers (NaN or infinite), from which no token "
    "follows: its weights, their quantisation or its config.json may be damaged";
// The same of FinishReason::kExpertLost.
inline constexpr std::string_view kExpertLostMessage =
    "an expert that this request needs could not be read from the packed weights: the log says "
    "which, and why; the request may be sent again";
// REQUIRES: engine::has_no_token(reason).
inline std::string_view message_of(engine::FinishReason reason) {
  return reason == engine::FinishReason::kExpertLost ? kExpertLostMessage : kNotNumbersMessage;
}
// A token of a request. The Iteration event of an iteration follows its tokens.
struct Token {
  int request_index = 0;
  int rank = 0;  // that has sampled it
  engine::Sampled sampled;
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  int cached_tokens = 0;                // prompt tokens that were found in the KV cache
  int step_drafts = 0;                  // as engine::SampledToken
  std::string digest;                   // in the last token, with RunOptions::logits_digest
  std::vector<engine::Sampled> likely;  // [SamplingParams::top_log_probabilities]
};
// How far a request's prompt has come, if it wants to know (engine::Request::reports_progress).
// Those of an iteration precede its tokens, and its Iteration event.
using engine::PromptProgress;
// An iteration that all ranks have finished, or all members if the group has lost some.
struct Iteration {
  std::vector<engine::IterationRecord> ranks;  // [world_size] or [members]
  std::vector<int> members;                    // empty: all
  int rank(size_t index) const {
    return members.empty() ? static_cast<int>(index) : members[index];
  }
};
// All ranks have begun (records) or ended to record experts. In the second case every iteration
// with counts has been an event already.
struct ExpertRecording {
  bool records = false;
  int number = 0;  // of the call of RequestWriter::record_experts
};
// All ranks prefer this role (RequestWriter::change_role).
struct RoleSeen {
  engine::Role role = engine::Role::kBoth;
  int number = 0;  // of the call
};
// Online balancing has moved experts, or has cancelled moves.
using Rebalance = online::Rebalance;
// It rests, because moves do not pay for themselves, or tries again.
using TrustChange = online::TrustChange;
// With RunOptions::expert_load, a few times a second while ranks compute: the load since the
// last such event of these layers. Of each stage of a pipeline by its first rank.
struct ExpertLoad {
  int first_layer = 0;          // among the model's MoE layers
  std::vector<int64_t> counts;  // [layers of the stage × num_experts] pairs of all ranks
};
// With RunOptions::expert_load: how much memory a rank's process has: when it begins to compute with
// the others, and at most once a second while it computes.
struct RankMemory {
  int rank = 0;
  uint64_t resident_bytes = 0;  // shared memory that it has touched included
};
// With RankMemory, where not all experts are in memory: what the rank has of them.
struct ExpertPlaces {
  int rank = 0;
  int num_owned = 0;          // experts of all its layers
  int num_records = 0;        // that have memory at the same time
  uint64_t record_bytes = 0;  // of an expert
  uint64_t read_bytes = 0;
  double read_seconds = 0.0;                       // with at least one read in flight
  std::vector<int> layers;                         // its MoE layers
  std::vector<residency::ResidencyCounts> counts;  // [layers]
};
// Requests were held and released (RequestWriter::submit_together), and all are answered.
struct RanksIdle {};
// With RoutingLogRequest::by_request, after the last iteration: how often the tokens of a request
// that one rank routed have chosen each expert. Counts of several ranks add up.
struct RequestCounts {
  int request_index = 0;
  std::vector<int64_t> counts;  // [MoE layers × num_experts]
};
// With RunOptions::routed_experts, for a request that wants it (engine::Request::returns_experts):
// the experts of its tokens, after its last token. The last generated token was never routed.
struct RoutedExperts {
  int request_index = 0;
  int num_positions = 0;  // from the first on; fewer than tokens if the request was cut early
  int num_layers = 0;     // the model's MoE layers, ascending, without those that predict
  int top_k = 0;
  std::vector<int32_t> experts;  // [num_positions, num_layers, top_k], in the router's order
};
// ---- of pages that are kept (engine/page_store.h) ----

// Why pages have not come from a peer. kGone: it does not answer, or refuses. kEnded: it has ended
// the request before all was there. kUnknown: it does not know the request. kMissing: it computes
// nothing, and has not all, or not any more. kBusy: too many prompts are waited for already.
// kUnused: what came, or might have, is not used.
enum class PeerTrouble : uint8_t {
  kNone,
  kGone,
  kEnded,
  kUnknown,
  kMissing,
  kBusy,
  kNoRoom,
  kUnused
};
std::string_view name_of(PeerTrouble trouble);  // "", "gone", …

// The answer of a rank to a kLook.
struct PagesFound {
  uint64_t ticket = 0;
  int rank = 0;
  int known = 0;  // first pages of the prompt that its cache has
  int found = 0;  // first pages that its cache or a place has; at least `known`
  // Numbers of first pages, at most `found`, after which the rank has the state; if the model keeps
  // states, but not this rank: is_stateless.
  std::vector<int32_t> states;
  bool is_stateless = true;
  double seconds = 0.0;  // predicted, of a fetch of all from `known` to `found`
  // `found` or `states` count what a peer computes at present, all of the prompt, or has
  // (Request::peer). How long that takes is the peer's matter.
  bool is_promised = false;
  // Why a peer has not said what it has; as in PeerPages.
  PeerTrouble peer_kind = PeerTrouble::kNone;
  std::string peer_trouble;
};
// What a rank has got of a prompt's pages from a peer.
struct PeerPages {
  int pages = 0;
  uint64_t bytes = 0;
  double seconds = 0.0;           // from the first question on
  double transfer_seconds = 0.0;  // of these, in which bytes came
  // Of these, after the peer had computed the prompt (store::PeerFetches::Done): what the way of the
  // pages adds to computing them.
  double exposed_seconds = 0.0;
  // Of those in which bytes came, at least so many while the peer computed.
  double hidden_seconds() const { return std::max(0.0, transfer_seconds - exposed_seconds); }
  // Why no more came: a line for the log, with what the peer has said; kNone and "": all came, or
  // nobody waited any more.
  PeerTrouble kind = PeerTrouble::kNone;
  std::string trouble;
};
// A fetch from a peer goes on, also where nothing has come since: of those that take long.
struct PagesArriving {
  uint64_t ticket = 0;
  int rank = 0;
  int pages = 0;  // first pages of the prompt that it has now
};
// A rank has done what a kFetch asked for, or has given it up.
struct PagesFetched {
  uint64_t ticket = 0;
  int rank = 0;
  int pages = 0;         // first pages of the prompt that it has now: whole, without a gap
  bool has_room = true;  // else its cache has no pages for them
  double seconds = 0.0;  // that it took
  uint64_t bytes = 0;
  PeerPages from_peer;  // of these
};
// Of a request with a peer, before its first token: what came from there.
struct PromptTransfer {
  int request_index = 0;
  int known_pages = 0;    // that the caches had
  int fetched_pages = 0;  // of places and of the peer, that are used
  // Pages: of the rank that got most. Bytes: of all together. Seconds: of each kind the most of a
  // rank. Trouble: also why what came is not used.
  PeerPages from_peer;
};
// With RunOptions::tells_pages: what has happened to the known pages of the caches. Of ranks that
// share sequences, one tells.
struct PagesChanged {
  int rank = 0;
  bool is_cleared = false;  // before the changes: none is known any more
  std::vector<engine::PageChange> changes;
};
// With places to keep prompts in: at most once a second, when it has changed, and to a new front.
struct StoreState {
  struct Tier {
    std::array<char, 16> label = {};  // store::Place::label(), with zeros
    store::PlaceCounts counts;
    store::PlaceSize size;
    bool is_out = false;  // left alone for now: it does not work
    std::string_view name() const { return {label.data()}; }
  };
  int rank = 0;
  uint64_t not_offered = 0;  // pages that were gone, or too many, before they could be offered
  std::vector<Tier> tiers;   // nearest first
};
// The last event of a rank.
struct RankEnded {
  int rank = 0;
  engine::RunTimes times;
  NodeTraffic traffic;
};
// With GroupOptions::reports_stop_signals: SIGINT or SIGTERM has arrived. The receiver of this
// event must stop the ranks (RankGroup::stop, end_within). A second signal ends the ranks at once.
struct StopRequested {
  int signal = 0;
};

// With GroupOptions::reports_hang_up: SIGHUP has arrived. The process stays, and should take no
// more work.
using transport::DrainSignal;

// The keeper of the ranks asks whether this process still works: RankGroup::kept()->answer().
using transport::Ping;

using Event = std::variant<WeightsRead, RanksReady, MembersChanged, RankStarted, RankDied, Token,
                           PromptProgress, PromptTransfer, Iteration, ExpertRecording, RoleSeen,
                           Rebalance, TrustChange, BackgroundSilence, ExpertLoad, RankMemory,
                           ExpertPlaces, RanksIdle, RequestCounts, RoutedExperts, PagesChanged,
                           StoreState, RankEnded, StopRequested, DrainSignal, Ping>;

// ---- from one rank to that process ----

// One rank's part of an Iteration.
struct RankIteration {
  engine::IterationRecord record;
};
// One rank's part of RoutedExperts: what it has routed of a request in its layers. Each rank that
// computes the request sends one when it ends, wanted or not.
struct RoutedPart {
  int request_index = 0;
  int first_layer = 0;  // among the model's MoE layers
  int num_layers = 0;
  std::vector<int32_t> positions;   // ascending
  std::vector<int64_t> iterations;  // [positions] in which they were routed last
  std::vector<int32_t> experts;     // [positions, num_layers, top_k]; −1: not routed
};
// An event of one rank. RanksReady, ExpertRecording, RoleSeen and RanksIdle mean only this rank
// here.
using RankEvent =
    std::variant<WeightsRead, RanksReady, MembersChanged, Token, PromptProgress, RankIteration,
                 ExpertRecording, RoleSeen, Rebalance, TrustChange, ExpertLoad, RankMemory,
                 ExpertPlaces, RanksIdle, RequestCounts, RoutedPart, PagesFound, PagesArriving,
                 PagesFetched, PagesChanged, StoreState, RankEnded>;

// To and from a message of a transport::Messenger, between processes of one build.
std::string encode(const RankEvent& event);
RankEvent decode(std::string_view message);

}  // namespace wideep::run
