// SPDX-License-Identifier: Apache-2.0
#include "server/router_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "http/http_server.h"
#include "store/record.h"

namespace wideep::server {
namespace {

using Clock = std::chrono::steady_clock;

// The timeout of a health check.
constexpr int kProbeSeconds = 2;
constexpr size_t kMaxProbeBytes = 64 << 10;
// Who has computed long prompts for others so lately is not asked for answers: the next prompt would
// keep them waiting.
constexpr std::chrono::seconds kPromptsComeAgain{60};

}  // namespace

// What a replica is asked every second, one question of a kind at a time.
struct RouterReplicas::Probe {
  explicit Probe(HttpServer& http) : health(http), state(http) {}

  RouterAsk health, state;
  Clock::time_point began;  // of health
};

RouterReplicas::RouterReplicas(HttpServer& http, const RouterOptions& options,
                               const std::vector<Resolved>& members)
    : http_(http),
      give_up_(options.give_up_seconds),
      key_(options.replica_key),
      disaggregation_(options.disaggregation),
      slots_(members.size() + (options.disaggregation ? kMaxJoining : 0)) {
  if (options.policy == RoutePolicy::kPrefix || disaggregation_) {
    prefixes_ = std::make_unique<RouterPrefixes>(slots_.size(), RouterPrefixes::Limits());
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    probes_.push_back(std::make_unique<Probe>(http_));
    if (prefixes_) watches_.push_back(std::make_unique<RouterPageWatch>(http_, *prefixes_));
  }
  // Not set_members(): an address may be given twice.
  for (size_t i = 0; i < members.size(); ++i) join(slots_[i], members[i]);
}

RouterReplicas::~RouterReplicas() = default;

void RouterReplicas::set_members(const std::vector<Resolved>& members) {
  for (RouterReplica& each : slots_) {
    const bool stays = std::ranges::any_of(members, [&](const Resolved& resolved) {
      return resolved.member.address == each.address();
    });
    if (each.slot == RouterReplica::Slot::kMember && !stays) {
      each.slot = RouterReplica::Slot::kLeaving;
      log::info("{} leaves: it gets no new requests", each.address().url());
    }
  }
  free_idle();
  unplaced_.clear();
  for (const Resolved& resolved : members) {
    const auto slot = std::ranges::find_if(slots_, [&](const RouterReplica& each) {
      return each.is_used() && each.address() == resolved.member.address;
    });
    if (slot != slots_.end()) {
      slot->slot = RouterReplica::Slot::kMember;
      slot->member.role = resolved.member.role;
      if (!resolved.numbers.empty() && resolved.numbers != slot->numbers) {
        move(*slot, resolved.numbers);
      }
    } else if (!resolved.numbers.empty() && !place(resolved)) {
      log::warn("{} cannot join yet: there are {} servers already, which is the most",
                resolved.member.address.url(), slots_.size());
      unplaced_.push_back(resolved);
    }
  }
  check_group();
}

// Returns whether a slot was free.
bool RouterReplicas::place(const Resolved& member) {
  const auto slot = std::ranges::find_if_not(slots_, &RouterReplica::is_used);
  if (slot == slots_.end()) return false;
  join(*slot, member);
  log::info("{} joins", slot->address().url());
  ask_health(index_of(*slot));
  if (disaggregation_) ask_state(index_of(*slot));
  return true;
}

void RouterReplicas::join(RouterReplica& slot, const Resolved& member) {
  slot = {.slot = RouterReplica::Slot::kMember, .member = member.member, .numbers = member.numbers};
  follow_pages(slot);
}

// Another machine has the name now, and knows nothing. What runs at the old one may end there.
void RouterReplicas::move(RouterReplica& replica, const std::string& numbers) {
  const size_t index = index_of(replica);
  log::info("{} is at {} now, was at {}", replica.address().url(), numbers, replica.numbers);
  lost(replica);
  probes_[index]->health.cancel();
  probes_[index]->state.cancel();
  replica.numbers = numbers;
  replica.silent_since.reset();
  follow_pages(replica);
  ask_health(index);
  if (disaggregation_) ask_state(index);
}

void RouterReplicas::follow_pages(const RouterReplica& replica) {
  if (!prefixes_) return;
  const size_t index = index_of(replica);
  watches_[index]->follow({.replica = index,
                           .host = replica.address().host,
                           .numbers = replica.numbers,
                           .port = replica.address().port,
                           .key = key_});
}

// What is still on its way from prefixes about the one before is little, and only makes a choice
// worse.
void RouterReplicas::free_idle() {
  for (RouterReplica& each : slots_) {
    if (each.slot != RouterReplica::Slot::kLeaving || !each.is_idle()) continue;
    lost(each);
    probes_[index_of(each)]->health.cancel();
    probes_[index_of(each)]->state.cancel();
    each = {};
  }
}

void RouterReplicas::probe() {
  free_idle();
  std::erase_if(unplaced_, [this](const Resolved& each) { return place(each); });
  if (disaggregation_) check_group();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].is_used()) continue;
    ask_health(i);
    if (disaggregation_) ask_state(i);
    if (prefixes_ && slots_[i].up) watches_[i]->check();
  }
}

void RouterReplicas::ask_health(size_t replica) {
  Probe& probe = *probes_[replica];
  if (probe.health.waits()) return;
  probe.began = Clock::now();
  RouterAsk::Question question = question_of(replica);
  question.target = "/health";
  question.timeout_ms = kProbeSeconds * 1000;
  question.max_reply_bytes = kMaxProbeBytes;
  probe.health.ask(question, [this, replica](int status, const std::string& body) {
    take_health(replica, status, body);
  });
}

void RouterReplicas::take_health(size_t replica, int status, const std::string& body) {
  RouterReplica& asked = slots_[replica];
  if (status != 0) {
    asked.silent_since.reset();
  } else if (!asked.silent_since) {
    asked.silent_since = probes_[replica]->began;
  }
  asked.up = status == 200;
  // One that drains keeps what it knows.
  if (!asked.up && !says_draining(body)) lost(asked);
}

void RouterReplicas::ask_state(size_t replica) {
  RouterAsk& ask = probes_[replica]->state;
  if (ask.waits()) return;
  RouterAsk::Question question = question_of(replica);
  question.target = "/v1/pd_role";
  question.timeout_ms = kProbeSeconds * 1000;
  question.max_reply_bytes = kMaxProbeBytes;
  if (!key_.empty()) question.headers.emplace_back("Authorization", "Bearer " + key_);
  ask.ask(question, [this, replica](int status, const std::string& body) {
    take_state(replica, status, body);
  });
}

// One that does not say how it is answers whole requests.
void RouterReplicas::take_state(size_t replica, int status, const std::string& body) {
  if (status == 0 || status >= 500) return;  // its health check notices
  RouterReplica& asked = slots_[replica];
  Result<PdState> state =
      status == 200 ? read_pd_state(body) : Result<PdState>(failed(fmt::format("{}", status)));
  if (!state.ok()) {
    asked.state.reset();
    complain(asked, status == 401   ? "/v1/pd_role: it wants a key (--replica-key-file)"
                    : status == 200 ? state.status().message()
                                    : fmt::format("/v1/pd_role: status {}", status));
    return check_group();
  }
  asked.has_complained = false;
  const engine::Role before = asked.role();
  const bool is_same = asked.state && asked.state->instance == state->instance &&
                       asked.state->version == state->version &&
                       asked.state->record_class == state->record_class;
  if (asked.state && asked.state->instance != state->instance) lost(asked);
  asked.state = std::move(*state);
  asked.changed_bytes = 0;
  if (asked.role() != before) {
    log::info("{} has the role {} now", asked.address().url(), engine::name_of(asked.role()));
  }
  if (!is_same) check_group();
}

void RouterReplicas::complain(RouterReplica& replica, const std::string& what) {
  if (std::exchange(replica.has_complained, true)) return;
  log::warn("{}: {}: it is not divided with; it is asked again, and this is said once",
            replica.address().url(), what);
}

// The group has the values that most healthy members have; of equal ones, those that it had before,
// or else the first that were known.
void RouterReplicas::check_group() {
  const auto is_known = [](const RouterReplica& each) {
    return each.slot == RouterReplica::Slot::kMember && each.up && each.state;
  };
  const auto num_in = [&](const PdGroup& group) {
    return std::ranges::count_if(slots_, [&](const RouterReplica& each) {
      return is_known(each) && group.refusal(*each.state, "").empty();
    });
  };
  const bool has_class = std::ranges::any_of(slots_, [&](const RouterReplica& each) {
    return is_known(each) && !each.state->record_class.empty();
  });
  if (group_ && group_->record_class.empty() && has_class) group_.reset();
  auto most = group_ ? num_in(*group_) : 0;
  for (const RouterReplica& each : slots_) {
    if (!is_known(each) || (has_class && each.state->record_class.empty())) continue;
    PdGroup other{.version = each.state->version,
                  .record_class = each.state->record_class,
                  .url = each.address().url()};
    const auto num = num_in(other);
    if (num <= most) continue;
    most = num;
    group_ = std::move(other);
  }
  for (RouterReplica& each : slots_) {
    std::string refusal;
    if (group_ && each.is_used() && each.state) {
      refusal = group_->refusal(*each.state, each.address().url());
    }
    if (!refusal.empty() && refusal != each.refusal) log::warn("{}", refusal);
    each.refusal = std::move(refusal);
  }
}

void RouterReplicas::lost(RouterReplica& replica) {
  if (replica.state) replica.state->opaque_state.clear();  // of a process that may have gone
  if (!prefixes_) return;
  const size_t index = index_of(replica);
  prefixes_->forget_sent(index);
  prefixes_->forget_pages(index);
  watches_[index]->lost();
}

bool RouterReplicas::hangs(const RouterReplica& replica, Clock::time_point now) const {
  return replica.silent_since && now - *replica.silent_since >= give_up_;
}

std::vector<RouterReplica*> RouterReplicas::candidates() {
  std::vector<RouterReplica*> found;
  for (RouterReplica& each : slots_) {
    if (each.takes_requests()) found.push_back(&each);
  }
  return found;
}

// Healthy replicas first, then those with the fewest requests in progress; equal ones in turn.
RouterReplica* RouterReplicas::choose(const Tried& tried, const Prompt& prompt) {
  if (prefixes_) return choose_cheapest(tried, prompt);
  const auto busy = [](const RouterReplica& each) { return std::pair(!each.up, each.running); };
  const std::vector<RouterReplica*> all = candidates();
  RouterReplica* best = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    RouterReplica* each = all[(next_ + i) % all.size()];
    if (!tried.contains(each) && (best == nullptr || busy(*each) < busy(*best))) best = each;
  }
  ++next_;
  return best;
}

RouterReplica* RouterReplicas::choose_cheapest(const Tried& tried, const Prompt& prompt) {
  const std::vector<RouterReplica*> all = candidates();
  std::vector<ReplicaCost> costs;
  costs.reserve(all.size());
  for (const RouterReplica* each : all) {
    costs.push_back({.is_tried = tried.contains(each),
                     .is_up = each->up,
                     .work = each->work(),
                     .known = prompt.known(index_of(*each))});
  }
  const size_t best = cheapest_replica(costs, prompt.bytes, next_++);
  return best == kNoReplica ? nullptr : all[best];
}

double RouterReplicas::Prompt::bytes_per_token() const {
  if (match == nullptr || match->num_tokens == 0) return kBytesPerToken;
  return static_cast<double>(bytes) / static_cast<double>(match->num_tokens);
}

uint64_t RouterReplicas::Prompt::known(size_t replica) const {
  return match == nullptr ? 0 : std::min(match->known[replica], bytes);
}

PdServer RouterReplicas::server_of(const RouterReplica& replica,
                                   const DivisionQuestion& question) const {
  const bool has_pages = replica.state && !replica.state->opaque_state.empty();
  const auto now = Clock::now();
  const bool is_busy =
      replica.long_prefills_running > 0 ||
      (replica.long_prefilled && now - *replica.long_prefilled < kPromptsComeAgain);
  PdServer server{.role = replica.role(),
                  .is_up = replica.up && !hangs(replica, now),
                  .may_answer = question.decode != nullptr ? question.decode == &replica
                                                           : !question.tried.contains(&replica),
                  .may_prefill = has_pages && !question.tried_prefills.contains(&replica),
                  .gives_pages = has_pages,
                  .is_busy_with_prompts = is_busy,
                  .running = static_cast<double>(replica.running),
                  .queued = static_cast<double>(replica.prompt_bytes) / kBytesPerToken,
                  .known = static_cast<double>(question.prompt.known(index_of(replica))) /
                           question.prompt.bytes_per_token()};
  if (!replica.state) return server;
  // What others have sent it counts, too.
  const double others = static_cast<double>(replica.state->running) - replica.prefills_running;
  server.running = std::max(server.running, others);
  server.queued = std::max(0.0, static_cast<double>(replica.state->prompt_tokens) +
                                    static_cast<double>(replica.changed_bytes) / kBytesPerToken);
  server.kv_share = replica.state->kv_share;
  server.price = replica.state->prefill_seconds_per_token;
  if (const auto pages = replica.state->pages_per_second) {
    server.way = 1.0 / (*pages * double{store::kPageTokens});
  }
  return server;
}

RouterReplicas::Division RouterReplicas::divide(const DivisionQuestion& question) {
  const std::vector<RouterReplica*> all = candidates();
  std::vector<PdServer> servers;
  servers.reserve(all.size());
  for (const RouterReplica* each : all) servers.push_back(server_of(*each, question));
  const double tokens =
      static_cast<double>(question.prompt.bytes) / question.prompt.bytes_per_token();
  const PdPlan plan = plan_request(
      servers, {.prompt_tokens = tokens, .may_divide = question.may_divide, .turn = next_++},
      *disaggregation_);
  Division division{.seconds = plan.seconds};
  if (plan.decode != kNoReplica) division.decode = all[plan.decode];
  if (plan.prefill != kNoReplica) division.prefill = all[plan.prefill];
  if (plan.earlier != kNoReplica) division.earlier = all[plan.earlier];
  return division;
}

bool RouterReplicas::has_other(const Tried& tried) const {
  return std::ranges::any_of(slots_, [&](const RouterReplica& each) {
    return each.takes_requests() && !tried.contains(&each);
  });
}

size_t RouterReplicas::num_members() const {
  return static_cast<size_t>(std::ranges::count_if(
      slots_, [](const RouterReplica& each) { return each.slot == RouterReplica::Slot::kMember; }));
}

size_t RouterReplicas::num_healthy() const {
  return static_cast<size_t>(std::ranges::count_if(
      slots_, [](const RouterReplica& each) { return each.takes_requests() && each.up; }));
}

std::string RouterReplicas::urls() const {
  std::string urls;
  for (const RouterReplica& each : slots_) {
    if (each.slot != RouterReplica::Slot::kMember) continue;
    urls += (urls.empty() ? "" : ", ") + each.address().url();
  }
  return urls.empty() ? "there is none yet" : urls;
}

// The least busy: what it is asked for takes no rank, but the processors of ranks.
std::optional<size_t> RouterReplicas::choose_for_names() {
  const auto is_known = [](const auto& watch) { return watch->is_known(); };
  if (std::ranges::none_of(watches_, is_known)) return std::nullopt;
  const Clock::time_point now = Clock::now();
  const RouterReplica* best = nullptr;
  for (const RouterReplica& each : slots_) {
    if (!each.takes_requests() || !each.up || now < each.names_from) continue;
    if (best == nullptr || each.work() < best->work()) best = &each;
  }
  if (best == nullptr) return std::nullopt;
  return index_of(*best);
}

RouterAsk::Question RouterReplicas::question_of(size_t replica) const {
  const RouterReplica& asked = slots_[replica];
  return {.host = asked.address().host, .numbers = asked.numbers, .port = asked.address().port};
}

void RouterReplicas::rest(size_t replica, std::chrono::seconds time) {
  slots_[replica].names_from = Clock::now() + time;
}

}  // namespace wideep::server
