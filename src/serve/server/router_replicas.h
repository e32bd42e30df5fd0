// SPDX-License-Identifier: Apache-2.0
//
// The replicas of a router: which there are, how they are, and which one a request goes to.
//
// Every second each is asked for /health, and with disaggregation for /v1/pd_role. One that does
// not reply with 200 gets requests only when no healthy one is left. Without this check a replica
// that loads, hangs or is switched off would look the least busy: it accepts connections, but has
// few requests.
//
// Members may come and go. Each has a slot, whose index is its name for RouterPrefixes. One that
// goes gets no new requests; when those that it has are over, its slot is free for another. One for
// which no slot is free waits for one:
//
//   free ── set_members has it ──▶ member ── set_members has not ──▶ leaving ── idle ──▶ free
//                                    ▲─────── set_members has it again ──┘
//
// What replicas have of prompts is found out by one other thread (router_prefixes.h), and a request
// waits for it for RouterPlacement::kPlaceMs at most. A replica that cannot be reached or whose
// health check fails counts as one that has begun anew; the others stay as they are.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/router_ask.h"
#include "server/router_costs.h"
#include "server/router_options.h"
#include "server/router_page_watch.h"
#include "server/router_pd_costs.h"
#include "server/router_pd_state.h"
#include "server/router_placement.h"
#include "server/router_prefixes.h"

namespace wideep::server {

struct RouterReplica {
  enum class Slot : uint8_t { kFree, kMember, kLeaving };
  Slot slot = Slot::kFree;
  RouterMember member;
  std::string numbers;        // numeric address of the host
  int running = 0;            // requests in progress that it answers
  uint64_t prompt_bytes = 0;  // of them and of prefills, to compute before an answer can come
  uint64_t requests = 0;
  uint64_t failures = 0;
  // With prefixes. Of prompts for text: bytes that it had, the requests that had some, or none.
  uint64_t known_bytes = 0, hits = 0, misses = 0;
  std::chrono::steady_clock::time_point names_from = {};  // when it may be asked for names
  bool up = true;  // the result of the last health check or request
  // When the first of the health checks began that have got no answer; nullopt: the last got one.
  std::optional<std::chrono::steady_clock::time_point> silent_since;

  // With disaggregation.
  std::optional<PdState> state;   // as it last said; nullopt: it does not
  int64_t changed_bytes = 0;      // of prompt_bytes, since then
  std::string refusal;            // why it is none of the group; "": it is
  bool has_complained = false;    // of its state, since the last good one
  int prefills_running = 0;       // prompts that it computes for others
  int long_prefills_running = 0;  // of these, those of kLongTokens
  std::optional<std::chrono::steady_clock::time_point> long_prefilled;  // the last one's end
  uint64_t prefills = 0, prefill_failures = 0;
  uint64_t alone = 0, divided = 0;  // prompts of requests for text that it answers: computed where
  double predicted_seconds = 0;     // of these, to their first tokens

  const ReplicaAddress& address() const { return member.address; }
  engine::Role role() const { return state ? state->role : member.role; }
  bool is_used() const { return slot != Slot::kFree; }
  bool is_idle() const { return running == 0 && prefills_running == 0; }
  bool takes_requests() const { return slot == Slot::kMember && refusal.empty(); }
  uint64_t work() const {  // in progress, bytes (router_costs.h)
    return prompt_bytes + kRequestBytes * static_cast<uint64_t>(running);
  }
  void begin_prompt(uint64_t bytes) {
    prompt_bytes += bytes;
    changed_bytes += static_cast<int64_t>(bytes);
  }
  void end_prompt(uint64_t bytes) {
    prompt_bytes -= bytes;
    changed_bytes -= static_cast<int64_t>(bytes);
  }
};

class RouterReplicas : private PageNameSource {
 public:
  // Beside those at the start, with disaggregation.
  static constexpr size_t kMaxJoining = 256;
  struct Resolved {
    RouterMember member;
    std::string numbers;  // "": its name has no address now

    bool operator==(const Resolved&) const = default;
  };
  using Tried = std::set<const RouterReplica*>;

  RouterReplicas(HttpServer& http, const RouterOptions& options,
                 const std::vector<Resolved>& members);
  ~RouterReplicas() override;
  RouterReplicas(const RouterReplicas&) = delete;
  RouterReplicas& operator=(const RouterReplicas&) = delete;

  // From now on these are the replicas. One without an address stays where it was, or is left out;
  // one with another address is asked there.
  void set_members(const std::vector<Resolved>& members);
  // Asks each how it is. Called every second.
  void probe();

  // A prompt as far as it is known. match: null: nothing is known of its beginning.
  struct Prompt {
    uint64_t bytes = 0;
    const PromptMatch* match = nullptr;

    double bytes_per_token() const;
    uint64_t known(size_t replica) const;
  };
  // The best replica that is not in `tried`; null: none is left.
  RouterReplica* choose(const Tried& tried, const Prompt& prompt);

  struct Division {
    RouterReplica* decode = nullptr;   // null: none is left
    RouterReplica* prefill = nullptr;  // null: the other one computes the prompt
    RouterReplica* earlier = nullptr;  // whose pages that one takes first; null: nobody's
    double seconds = 0;                // predicted, to the first token
  };
  struct DivisionQuestion {
    const Tried& tried;           // of those that answer
    const Tried& tried_prefills;  // of the others
    Prompt prompt;
    bool may_divide = true;
    const RouterReplica* decode = nullptr;  // it answers already; null: nobody does
  };
  // REQUIRES: disaggregation() != null.
  Division divide(const DivisionQuestion& question);

  // It cannot be reached, or its health check fails: it may begin anew, and know nothing.
  void lost(RouterReplica& replica);
  // It answers no health check, though its machine may take connections.
  bool hangs(const RouterReplica& replica, std::chrono::steady_clock::time_point now) const;
  bool has_other(const Tried& tried) const;
  size_t num_members() const;
  size_t num_healthy() const;
  std::string urls() const;

  size_t index_of(const RouterReplica& replica) const {
    return static_cast<size_t>(&replica - slots_.data());
  }
  const std::vector<RouterReplica>& slots() const { return slots_; }  // some are free
  const DisaggregationOptions* disaggregation() const {
    return disaggregation_ ? &*disaggregation_ : nullptr;
  }
  RouterPrefixes* prefixes() { return prefixes_.get(); }  // null: not with this policy
  bool has_prefixes() const { return prefixes_ != nullptr; }
  const RouterPageWatch& watch(size_t replica) const { return *watches_[replica]; }
  PageNameSource& names() { return *this; }

  struct Totals {
    uint64_t num_exact = 0;     // requests whose page names were known
    uint64_t num_unread = 0;    // prompts that were not read
    uint64_t prompt_bytes = 0;  // of prompts that were
    uint64_t num_prefill_retries = 0;
    uint64_t num_resumed = 0;  // streams that another replica was asked to go on with
  };
  Totals totals;

 private:
  struct Probe;

  void join(RouterReplica& slot, const Resolved& member);
  void follow_pages(const RouterReplica& replica);
  void move(RouterReplica& replica, const std::string& numbers);
  bool place(const Resolved& member);
  void free_idle();
  std::vector<RouterReplica*> candidates();
  RouterReplica* choose_cheapest(const Tried& tried, const Prompt& prompt);
  PdServer server_of(const RouterReplica& replica, const DivisionQuestion& question) const;
  std::optional<size_t> choose_for_names() override;
  RouterAsk::Question question_of(size_t replica) const override;
  void rest(size_t replica, std::chrono::seconds time) override;
  void ask_health(size_t replica);
  void take_health(size_t replica, int status, const std::string& body);
  void ask_state(size_t replica);
  void take_state(size_t replica, int status, const std::string& body);
  void complain(RouterReplica& replica, const std::string& what);
  void check_group();

  HttpServer& http_;
  const std::chrono::seconds give_up_;
  const std::string key_;
  const std::optional<DisaggregationOptions> disaggregation_;
  std::vector<RouterReplica> slots_;  // as many for ever
  std::vector<Resolved> unplaced_;    // members for which none was free
  size_t next_ = 0;                   // equally busy replicas take turns
  std::optional<PdGroup> group_;
  std::unique_ptr<RouterPrefixes> prefixes_;
  std::vector<std::unique_ptr<Probe>> probes_;             // [slots]
  std::vector<std::unique_ptr<RouterPageWatch>> watches_;  // [slots]; none without prefixes
};

}  // namespace wideep::server
