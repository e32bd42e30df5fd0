// SPDX-License-Identifier: Apache-2.0
//
// Each rank counts since its process began, so sums take what has been added since its last report.
// Sizes are those of the place, whoever tells them.
#include "server/place_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using store::PlaceCounts;

struct Counter {
  const char* name;
  const char* help;
  uint64_t PlaceCounts::* value;
};

constexpr Counter kCounters[] = {
    {"hits", "Records (pages, states; of each rank its part) that came from a place.",
     &PlaceCounts::fetched},
    {"bytes", "Their bytes.", &PlaceCounts::fetched_bytes},
    {"taken", "Records that a place has taken.", &PlaceCounts::taken},
    {"taken_bytes", "Their bytes.", &PlaceCounts::taken_bytes},
    {"evicted", "Records that gave way to others.", &PlaceCounts::evicted},
    {"damaged", "Records with wrong bytes: their tokens were computed.", &PlaceCounts::damaged},
    {"foreign", "Records of another class or version that were skipped.", &PlaceCounts::foreign},
    {"failures", "Calls of a place that failed.", &PlaceCounts::failures},
};

uint64_t tokens_of(const PlaceCounts& counts) { return counts.fetched * store::kPageTokens; }

// A count that falls is that of another process.
template <typename T>
T added(T now, T before) {
  return now < before ? now : now - before;
}

void add(const PlaceCounts& now, const PlaceCounts& before, PlaceCounts* sum) {
  for (const Counter& each : kCounters) {
    sum->*each.value += added(now.*each.value, before.*each.value);
  }
  sum->fetch_seconds += added(now.fetch_seconds, before.fetch_seconds);
}

std::string full_name(std::string_view name) { return fmt::format("wideep_prompt_cache_{}", name); }

std::string fetches_text(const run::FetchCounts& all) {
  const auto counter = [](std::string_view name, std::string_view help, auto value) {
    return metric(full_name(name), "counter", help, value);
  };
  return counter("looked_total", "Requests whose prompts were looked for in places.", all.looked) +
         counter("fetched_requests_total", "Requests whose prompts came from places.",
                 all.fetched_requests) +
         counter("fetched_tokens_total", "Tokens of these that were not computed.",
                 all.fetched_tokens) +
         counter("refused_as_dearer_total", "Fetches that would take longer than computing.",
                 all.refused_as_dearer) +
         counter("gave_up_total", "Fetches that were given up: too slow, no room, or gone.",
                 all.gave_up) +
         counter("seconds_saved_total", "Time of computing that fetches have saved.",
                 all.saved_seconds);
}

}  // namespace

PlaceStates::PlaceStates(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) tier(label);
}

PlaceStates::Tier& PlaceStates::tier(std::string_view label) {
  const auto found = std::ranges::find(tiers_, label, &Tier::label);
  if (found != tiers_.end()) return *found;
  tiers_.push_back({.label = std::string(label), .counts = {}, .size = {}, .out = {}});
  return tiers_.back();
}

void PlaceStates::take(const run::StoreState& state) {
  const auto [found, is_first] = last_.try_emplace(state.rank);
  Counted& before = found->second;
  const bool counts = !is_first || !goes_on_;
  if (counts) not_offered_ += added(state.not_offered, before.not_offered);
  before.not_offered = state.not_offered;
  for (Tier& each : tiers_) each.out.erase(state.rank);  // also those that are left out
  for (const run::StoreState::Tier& each : state.tiers) {
    Tier& all = tier(each.name());
    PlaceCounts& last = before.tiers[all.label];
    if (counts) add(each.counts, last, &all.counts);
    last = each.counts;
    all.size = each.size;
    if (each.is_out) all.out.insert(state.rank);
  }
}

void PlaceStates::ended(int rank) {
  last_[rank] = {};
  for (Tier& each : tiers_) each.out.erase(rank);
}

run::FetchCounts PlaceStates::fetches() const {
  run::FetchCounts counts = read_ ? read_() : run::FetchCounts();
  counts.saved_seconds = saved_seconds_ = std::max(counts.saved_seconds, saved_seconds_);
  return counts;
}

std::string PlaceStates::metrics() const {
  if (!exist()) return "";
  std::string text;
  const auto by_tier = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto value_of) {
    const std::string full = full_name(name);
    text += metric_head(full, type, help);
    for (const Tier& each : tiers_) {
      text += fmt::format("{}{{tier=\"{}\"}} {}\n", full, label_text(each.label), value_of(each));
    }
  };
  for (const Counter& counter : kCounters) {
    by_tier(fmt::format("{}_total", counter.name), "counter", counter.help,
            [&](const Tier& each) { return each.counts.*counter.value; });
  }
  by_tier("tokens_total", "counter", "Tokens of the records that came, 64 of each.",
          [](const Tier& each) { return tokens_of(each.counts); });
  by_tier("fetch_seconds_total", "counter", "Time that ranks have read them.",
          [](const Tier& each) { return each.counts.fetch_seconds; });
  by_tier("size_bytes", "gauge", "Bytes that a place keeps, of all that share it.",
          [](const Tier& each) { return each.size.bytes; });
  by_tier("max_bytes", "gauge", "Bytes that it may keep; 0: it does not say.",
          [](const Tier& each) { return each.size.max_bytes; });
  by_tier("records", "gauge", "Records that it keeps.",
          [](const Tier& each) { return each.size.records; });
  by_tier("out", "gauge", "Ranks that leave the place alone for now, as it does not work.",
          [](const Tier& each) { return each.out.size(); });
  text +=
      metric(full_name("not_offered_total"), "counter",
             "Records that were gone, or too many, before a place could take them.", not_offered_);
  return text + fetches_text(fetches());
}

ordered_json PlaceStates::json() const {
  if (!exist()) return nullptr;
  const run::FetchCounts all = fetches();
  ordered_json tiers = ordered_json::array();
  for (const Tier& each : tiers_) {
    tiers.push_back({{"tier", each.label},
                     {"hits", each.counts.fetched},
                     {"tokens", tokens_of(each.counts)},
                     {"bytes", each.counts.fetched_bytes},
                     {"taken", each.counts.taken},
                     {"evicted", each.counts.evicted},
                     {"damaged", each.counts.damaged},
                     {"size", each.size.bytes},
                     {"max_size", each.size.max_bytes},
                     {"records", each.size.records},
                     {"out", each.out.size()}});
  }
  return {{"tiers", std::move(tiers)},    {"requests", all.fetched_requests},
          {"tokens", all.fetched_tokens}, {"refused_as_dearer", all.refused_as_dearer},
          {"gave_up", all.gave_up},       {"saved_seconds", all.saved_seconds}};
}

}  // namespace wideep::server
