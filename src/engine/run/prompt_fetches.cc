// SPDX-License-Identifier: Apache-2.0
//
// An entry of looks_ lives from kLook on until ranks have nothing more to answer or were told that
// nobody wants it: a look ends with kAbandon or becomes a fetch, a fetch ends with kImport. If its
// request does not wait any more (kNobody), a fetch stays until all ranks have answered. A request
// that pauses has no entry there, and one in paused_: it gets a new ticket.
#include "run/prompt_fetches.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "store/record.h"

namespace wideep::run {
namespace {

// What a look, or a fetch beyond its prediction, may take on an idle machine.
constexpr double kGraceSeconds = 2.0;
// A command waits for the end of an iteration, and the answer may do so, too.
constexpr double kIterations = 2.0;
constexpr double kPredictions = 4.0;
constexpr double kLongestFetchSeconds = 120.0;
// Of what a peer computes, while it says so.
constexpr double kLongestPromiseSeconds = 1800.0;
// For room in the cache, between two tries.
constexpr double kFirstPauseSeconds = 0.25, kLongestPauseSeconds = 2.0;
// For which requests are submitted at once to an owner that does not answer.
constexpr double kSilenceSeconds = 30.0;
// Of a rank's prediction.
constexpr double kMaxSeconds = 1e6;

constexpr std::string_view kNoRoom = "the KV cache has no room for its pages";

double sane_seconds(double seconds) {
  return std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMaxSeconds) : kMaxSeconds;
}

// The largest number of pages, at most `found`, that is among the states.
int largest_state(const std::vector<int32_t>& states, int found) {
  int largest = 0;
  for (const int32_t each : states) {
    if (each <= found) largest = std::max(largest, each);
  }
  return largest;
}

void append(PromptFetches::Steps& steps, PromptFetches::Steps more) {
  steps.insert(steps.end(), more.begin(), more.end());
}

}  // namespace

PromptFetches::PromptFetches(uint64_t first_ticket, Clock clock)
    : clock_(std::move(clock)), next_ticket_(first_ticket) {}

int PromptFetches::most_pages(size_t prompt_tokens) {
  return prompt_tokens == 0 ? 0 : static_cast<int>((prompt_tokens - 1) / store::kPageTokens);
}

PromptFetches::Steps PromptFetches::begin(const Prompt& prompt) {
  const auto answers = answers_.find(prompt.owner);
  if (answers == answers_.end() || clock_() >= answers->second.none_before) {
    ++counts_.looked;
    return look_for(prompt, {});
  }
  ++counts_.gave_up;
  tell_transfer({.prompt = prompt, .awaited = {}, .states = {}}, 0,
                "this server's rank does not answer at present");
  return {{.kind = Kind::kSubmit, .owner = prompt.owner, .index = prompt.index}};
}

PromptFetches::Steps PromptFetches::look_for(const Prompt& prompt, const Patience& patience) {
  const double now = clock_();
  const uint64_t ticket = next_ticket_++;
  const int max_pages = most_pages(prompt.num_tokens);
  looks_[ticket] = {.prompt = prompt,
                    .patience = patience,
                    .awaited = {prompt.ranks.begin(), prompt.ranks.end()},
                    .max_pages = max_pages,
                    .looked_at = now,
                    .asked_at = now,
                    .known = max_pages,
                    .found = max_pages,
                    .states = std::nullopt};
  return {{.kind = Kind::kLook, .owner = prompt.owner, .index = prompt.index, .ticket = ticket}};
}

// A look from which this rank's answer is missing; end(): there is none.
PromptFetches::Looks::iterator PromptFetches::awaiting(uint64_t ticket, int rank, bool fetches) {
  const auto look = looks_.find(ticket);
  const bool is_awaited = look != looks_.end() && look->second.fetches == fetches &&
                          look->second.awaited.erase(rank) > 0;
  if (!is_awaited) return looks_.end();
  answers_[look->second.prompt.owner] = {.last_at = clock_()};
  return look;
}

PromptFetches::Steps PromptFetches::found(const PagesFound& answer) {
  const auto look = awaiting(answer.ticket, answer.rank, false);
  if (look == looks_.end()) return {};
  note(look->second, answer);
  return settle(look);
}

void PromptFetches::note(Look& look, const PagesFound& answer) {
  const int found = std::clamp(answer.found, 0, look.max_pages);
  const int known = std::clamp(answer.known, 0, found);
  look.known = std::min(look.known, known);
  look.found = std::min(look.found, found);
  look.is_promised = look.is_promised || answer.is_promised;
  note(look, PeerPages{.kind = answer.peer_kind, .trouble = answer.peer_trouble});
  if (found > known) {
    const double per_page = sane_seconds(answer.seconds) / (found - known);
    look.seconds_per_page = std::max(look.seconds_per_page, per_page);
  }
  if (answer.is_stateless) return;
  if (!look.states) {
    look.states = answer.states;
    return;
  }
  std::erase_if(*look.states, [&](int32_t each) {
    return std::ranges::find(answer.states, each) == answer.states.end();
  });
}

// Pages: of the rank that got most of them.
void PromptFetches::note(Look& look, const PeerPages& more) {
  PeerPages& all = look.from_peer;
  all.pages = std::max(all.pages, std::clamp(more.pages, 0, look.max_pages));
  all.bytes += more.bytes;
  const double seconds = sane_seconds(more.seconds);
  if (all.trouble.empty() || (!more.trouble.empty() && seconds > all.seconds)) {
    all.kind = more.kind;
    all.trouble = more.trouble;
  }
  all.seconds = std::max(all.seconds, seconds);
  all.transfer_seconds = std::max(all.transfer_seconds, sane_seconds(more.transfer_seconds));
  all.exposed_seconds = std::max(all.exposed_seconds, sane_seconds(more.exposed_seconds));
}

void PromptFetches::arriving(const PagesArriving& answer) {
  const auto look = looks_.find(answer.ticket);
  if (look == looks_.end()) return;
  Look& fetch = look->second;
  if (!fetch.fetches || !fetch.is_promised || !fetch.awaited.contains(answer.rank)) return;
  fetch.heard[answer.rank] = {.at = clock_(), .pages = std::clamp(answer.pages, 0, fetch.wanted)};
  answers_[fetch.prompt.owner] = {.last_at = clock_()};
}

PromptFetches::Steps PromptFetches::fetched(const PagesFetched& answer) {
  const auto found = awaiting(answer.ticket, answer.rank, true);
  if (found == looks_.end()) return {};
  Look& look = found->second;
  look.pages = std::min(look.pages, std::clamp(answer.pages, 0, look.wanted));
  look.has_room = look.has_room && answer.has_room;
  note(look, answer.from_peer);
  // Nothing comes of it, whatever the others get.
  if (!look.has_room && look.is_waited_for() && !look.awaited.empty()) return lack_room(found);
  return settle(found);
}

// If all have answered.
PromptFetches::Steps PromptFetches::settle(Looks::iterator look) {
  if (!look->second.awaited.empty()) return {};
  return look->second.fetches ? import(look) : decide(look);
}

PromptFetches::Steps PromptFetches::decide(Looks::iterator found) {
  Look& look = found->second;
  look.wanted = look.states ? largest_state(*look.states, look.found) : look.found;
  const int gain = look.wanted - look.known;
  look.predicted = look.seconds_per_page * std::max(gain, 0);
  const auto price = price_.seconds_per_token(clock_());
  const double computing = price.value_or(0.0) * gain * store::kPageTokens;
  const bool is_dearer = price && look.predicted >= computing;
  if (gain > 0 && (look.is_promised || !is_dearer)) return fetch(found);
  if (gain > 0) ++counts_.refused_as_dearer;
  return submit_without(found, "");
}

PromptFetches::Steps PromptFetches::fetch(Looks::iterator found) {
  Look& look = found->second;
  look.fetches = true;
  look.pages = look.wanted;
  look.awaited = {look.prompt.ranks.begin(), look.prompt.ranks.end()};
  look.asked_at = clock_();
  return {{.kind = Kind::kFetch,
           .owner = look.prompt.owner,
           .ticket = found->first,
           .num_pages = look.wanted}};
}

PromptFetches::Steps PromptFetches::import(Looks::iterator found) {
  const Look look = std::move(found->second);
  const uint64_t ticket = found->first;
  looks_.erase(found);
  const bool is_whole = !look.states || look.pages == look.wanted;
  const bool is_use = look.has_room && is_whole && look.pages > look.known && look.is_waited_for();
  const int pages = is_use ? look.pages : 0;
  const int owner = look.prompt.owner;
  Steps steps = {{.kind = Kind::kImport, .owner = owner, .ticket = ticket, .num_pages = pages}};
  if (!look.is_waited_for()) return steps;
  if (!look.has_room && pause(look)) return steps;
  count_import(look, pages);
  tell_transfer(look, pages, look.has_room ? "" : kNoRoom);
  steps.push_back(
      {.kind = Kind::kSubmit, .owner = owner, .index = look.prompt.index, .num_pages = pages});
  return steps;
}

// Whether the request is looked for again.
bool PromptFetches::pause(const Look& look) {
  if (!look.is_promised || !look.prompt.peer_computes) return false;
  const double now = clock_();
  const bool is_first = look.patience.pause == 0.0;
  const Patience patience = {
      .since = is_first ? now : look.patience.since,
      .pause = is_first ? kFirstPauseSeconds
                        : std::min(2.0 * look.patience.pause, kLongestPauseSeconds)};
  if (now + patience.pause > patience.since + kLongestFetchSeconds) return false;
  paused_[look.prompt.index] = {
      .prompt = look.prompt, .patience = patience, .until = now + patience.pause};
  return true;
}

void PromptFetches::tell_transfer(const Look& look, int pages, std::string_view trouble) {
  if (!look.prompt.tells_transfer) return;
  PromptTransfer transfer = {.request_index = look.prompt.index,
                             .known_pages = look.known,
                             .fetched_pages = std::max(pages - look.known, 0),
                             .from_peer = look.from_peer};
  if (transfer.from_peer.trouble.empty() && !trouble.empty()) {
    transfer.from_peer.kind = PeerTrouble::kUnused;
    transfer.from_peer.trouble = trouble;
  }
  transfers_.push_back(std::move(transfer));
}

void PromptFetches::count_import(const Look& look, int pages) {
  if (pages == 0) {
    ++counts_.gave_up;
    return;
  }
  const uint64_t tokens = static_cast<uint64_t>(pages - look.known) * store::kPageTokens;
  ++counts_.fetched_requests;
  counts_.fetched_tokens += tokens;
  if (look.is_promised) return;
  const double now = clock_();
  const auto price = price_.seconds_per_token(now);
  if (!price) return;
  counts_.saved_seconds += *price * static_cast<double>(tokens) - (now - look.looked_at);
}

// A fetch stays until the ranks have answered: they have lent pages for it.
PromptFetches::Steps PromptFetches::abandon(Looks::iterator look) {
  Steps steps = {
      {.kind = Kind::kAbandon, .owner = look->second.prompt.owner, .ticket = look->first}};
  if (look->second.fetches) {
    look->second.prompt.index = kNobody;
  } else {
    looks_.erase(look);
  }
  return steps;
}

PromptFetches::Steps PromptFetches::submit_without(Looks::iterator look, std::string_view trouble) {
  const Prompt& prompt = look->second.prompt;
  const Step submit = {.kind = Kind::kSubmit, .owner = prompt.owner, .index = prompt.index};
  tell_transfer(look->second, 0, trouble);
  Steps steps = abandon(look);
  steps.push_back(submit);
  return steps;
}

PromptFetches::Steps PromptFetches::give_up(Looks::iterator look, std::string_view trouble) {
  ++counts_.gave_up;
  return submit_without(look, trouble);
}

// Before all ranks have answered.
PromptFetches::Steps PromptFetches::lack_room(Looks::iterator look) {
  return pause(look->second) ? abandon(look) : give_up(look, kNoRoom);
}

// By owner, what the fetches that are waited for may take.
std::map<int, double> PromptFetches::seconds_to_fetch() const {
  std::map<int, double> seconds;
  for (const auto& [ticket, look] : looks_) {
    if (look.fetches && look.is_waited_for()) {
      seconds[look.prompt.owner] += kPredictions * look.predicted;
    }
  }
  return seconds;
}

// When that rank of those that are awaited has said that pages arrive of which it is longest ago.
// nullopt: not all have.
std::optional<double> PromptFetches::heard_at(const Look& look) {
  std::optional<double> first;
  for (const int rank : look.awaited) {
    const auto heard = look.heard.find(rank);
    if (heard == look.heard.end()) return std::nullopt;
    first = std::min(first.value_or(heard->second.at), heard->second.at);
  }
  return first;
}

// Of a request the least that a rank has said; one that has answered waits for the others.
PeerWaits PromptFetches::peer_waits() const {
  PeerWaits waits{.requests = static_cast<int64_t>(paused_.size())};
  for (const auto& [ticket, look] : looks_) {
    if (!look.fetches || !look.is_promised || !look.is_waited_for()) continue;
    ++waits.requests;
    int least = look.pages;
    for (const int rank : look.awaited) {
      const auto heard = look.heard.find(rank);
      least = std::min(least, heard == look.heard.end() ? 0 : heard->second.pages);
    }
    waits.pages += std::max(least - look.known, 0);
  }
  return waits;
}

// to_fetch: of its owner. Answers of others move it, but not for ever.
double PromptFetches::deadline_of(const Look& look, double to_fetch) const {
  const auto answers = answers_.find(look.prompt.owner);
  const double answered_at = answers == answers_.end() ? 0.0 : answers->second.last_at;
  const std::optional<double> heard = heard_at(look);
  const double begin = std::max(look.asked_at, *ready_at_);
  const double end = std::min(
      std::max(begin, heard.value_or(answered_at)) + std::min(to_fetch, kLongestFetchSeconds),
      begin + (heard ? kLongestPromiseSeconds : kLongestFetchSeconds));
  return end + kGraceSeconds + kIterations * pace_.longest(clock_());
}

// A peer that is slow says nothing of the ranks.
PromptFetches::Steps PromptFetches::expire() {
  if (!ready_at_) return {};
  const double now = clock_();
  std::map<int, double> to_fetch = seconds_to_fetch();
  Steps steps;
  for (auto next = looks_.begin(); next != looks_.end();) {
    const auto each = next++;
    const Look& look = each->second;
    const int owner = look.prompt.owner;
    if (!look.is_waited_for() || deadline_of(look, to_fetch[owner]) > now) continue;
    if (!look.fetches || !look.is_promised) answers_[owner].none_before = now + kSilenceSeconds;
    append(steps, give_up(each, "it took too long"));
  }
  for (auto next = paused_.begin(); next != paused_.end();) {
    const auto each = next++;
    if (each->second.until > now) continue;
    append(steps, look_for(each->second.prompt, each->second.patience));
    paused_.erase(each);
  }
  return steps;
}

PromptFetches::Steps PromptFetches::release(int index) {
  paused_.erase(index);
  const auto look = std::ranges::find_if(
      looks_, [&](const auto& each) { return each.second.prompt.index == index; });
  return look == looks_.end() ? Steps() : abandon(look);
}

void PromptFetches::drop_owner(int owner) {
  const auto is_its = [&](const auto& each) { return each.second.prompt.owner == owner; };
  std::erase_if(looks_, is_its);
  std::erase_if(paused_, is_its);
  answers_.erase(owner);
}

// Where no rank is left, the deadline stays: there is nothing to conclude.
PromptFetches::Steps PromptFetches::lose_rank(int rank) {
  for (auto& [index, paused] : paused_) std::erase(paused.prompt.ranks, rank);
  Steps steps;
  for (auto next = looks_.begin(); next != looks_.end();) {
    const auto look = next++;
    std::erase(look->second.prompt.ranks, rank);
    const bool was_awaited = look->second.awaited.erase(rank) > 0;
    if (was_awaited && !look->second.prompt.ranks.empty()) append(steps, settle(look));
  }
  return steps;
}

void PromptFetches::iteration_ended(const Iteration& iteration) {
  const double now = clock_();
  price_.add(iteration, now);
  pace_.add(iteration, now);
}

}  // namespace wideep::run
