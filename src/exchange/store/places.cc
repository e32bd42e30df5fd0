// SPDX-License-Identifier: Apache-2.0
#include "store/places.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace wideep::store {
namespace {

constexpr double kSecondsBetweenDamageLines = 10.0;

std::string why(const Place& place, std::string_view otherwise) {
  return std::string(place.trouble().empty() ? otherwise : place.trouble());
}

}  // namespace

double Places::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Places::Places(std::vector<ListedPlace> places, Clock now) : now_(std::move(now)) {
  for (ListedPlace& each : places) {
    places_.push_back({.place = std::move(each.place),
                       .price = FetchPrice(each.expected),
                       .takes_hits = each.takes_hits});
  }
}

// ---- places that do not work ----

bool Places::is_readable(const Entry& entry) const {
  return entry.finding.may_try(now_()) && entry.fetching.may_try(now_());
}

bool Places::is_writable(const Entry& entry) const {
  return is_readable(entry) && entry.offering.may_try(now_());
}

bool Places::is_out(int index) const { return entry(index).is_out(); }

// After a call of the kind that `outage` is of.
void Places::settle(Entry& entry, Outage& outage, const Status& status) {
  const bool was_out = entry.is_out();
  const double now = now_();
  if (status.ok()) {
    outage.worked();
    if (was_out && !entry.is_out()) {
      log::info("prompt cache: {}: works again after {:.0f} s", entry.place->label(),
                now - entry.out_since);
    }
    return;
  }
  outage.failed(now);
  if (was_out) return;
  entry.out_since = now;
  log::warn("prompt cache: {}: {}; {}, next try in {:.0f} s", entry.place->label(),
            status.message(),
            &outage == &entry.offering ? "it keeps nothing new" : "prompts are computed instead",
            outage.wait());
}

// A server that is busy for a moment goes on to be asked; one that is too slow for its limit is not.
void Places::settle_find(Entry& entry, const PlaceCounts& before) {
  const PlaceCounts now = entry.place->counts();
  Status status;
  if (now.failures > before.failures) {
    status = failed(why(*entry.place, "it cannot be searched"));
  } else if (now.slow_finds > before.slow_finds) {
    if (++entry.slow_finds < kMaxSlowFinds && !entry.finding.is_out()) return;
    status = failed(fmt::format("{} searches in a row took too long", entry.slow_finds));
  } else {
    entry.slow_finds = 0;
  }
  settle(entry, entry.finding, status);
}

// ---- reading ----

std::vector<int> Places::find_from(int first, std::span<const Head> heads) {
  std::vector<int> where(heads.size(), kNowhere);
  std::vector<Head> left(heads.begin(), heads.end());
  std::vector<size_t> indices(heads.size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  for (int index = first; index < size() && !left.empty(); ++index) {
    Entry& here = entry(index);
    if (!is_readable(here)) continue;
    const PlaceCounts before = here.place->counts();
    const std::vector<bool> found = here.place->find(left);
    WIDEEP_CHECK_EQ(found.size(), left.size());
    settle_find(here, before);
    size_t kept = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      if (found[i]) {
        where[indices[i]] = index;
        continue;
      }
      left[kept] = left[i];
      indices[kept++] = indices[i];
    }
    left.resize(kept);
    indices.resize(kept);
  }
  return where;
}

PlacePrice Places::price(int index) const { return entry(index).price.at(now_()); }

double Places::predicted_seconds(std::span<const Head> heads, std::span<const int> where) const {
  WIDEEP_CHECK_EQ(heads.size(), where.size());
  std::vector<uint64_t> bytes(places_.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    if (where[i] != kNowhere) bytes[static_cast<size_t>(where[i])] += heads[i].part.bytes();
  }
  double seconds = 0.0;
  for (int index = 0; index < size(); ++index) {
    const uint64_t here = bytes[static_cast<size_t>(index)];
    if (here == 0) continue;
    const PlacePrice now = price(index);
    seconds += now.latency_seconds + static_cast<double>(here) * now.seconds_per_byte;
  }
  return seconds;
}

void Places::fetch_from(int index, std::span<const Wanted> wanted, Batch& batch, const Done& done) {
  Entry& here = entry(index);
  std::vector<FetchOrder> orders;
  for (const size_t i : batch.indices) orders.push_back(wanted[i].order);

  FetchTimes times;
  double begin = now_();
  bool has_looked_on = false;
  const auto take = [&](size_t i, FetchResult result) {
    const double now = now_();
    batch.results[i] = result;
    if (result == FetchResult::kWhole) {
      const uint64_t bytes = orders[i].into.size();
      times.last_seconds = now - begin;
      if (times.bytes == 0) {
        times.first_seconds = times.last_seconds;
        times.first_bytes = bytes;
      }
      times.bytes += bytes;
      batch.has_ended = !done(batch.indices[i], result, index);
    } else if (!std::exchange(has_looked_on, true)) {
      const Head& head = orders[i].head;
      batch.next[i] = find_from(index + 1, {&head, 1}).front();
      if (batch.next[i] == kNowhere) batch.has_ended = !done(batch.indices[i], result, kNowhere);
    }
    begin += now_() - now;  // what the caller does is not the place's
    return !batch.has_ended;
  };
  const uint64_t failures = here.place->counts().failures;
  Status status = here.place->fetch(orders, take);
  if (status.ok() && here.place->counts().failures > failures)
    status = failed(why(*here.place, "it cannot be read"));
  settle(here, here.fetching, status);
  if (times.bytes > 0) here.price.measured(times, now_());
}

// In places behind `index`, for what it does not have. Tells of what is nowhere.
void Places::look_on(int index, std::span<const Wanted> wanted, Batch& batch, const Done& done) {
  std::vector<Head> left;
  std::vector<size_t> left_at;  // in the batch
  for (size_t i = 0; i < batch.indices.size(); ++i) {
    if (batch.results[i] == FetchResult::kWhole || batch.next[i] != kNotLooked) continue;
    left.push_back(wanted[batch.indices[i]].order.head);
    left_at.push_back(i);
  }
  if (left.empty()) return;
  const std::vector<int> next = find_from(index + 1, left);
  for (size_t i = 0; i < left.size() && !batch.has_ended; ++i) {
    const size_t at = left_at[i];
    batch.next[at] = next[i];
    if (next[i] == kNowhere) {
      batch.has_ended = !done(batch.indices[at], batch.results[at], kNowhere);
    }
  }
}

void Places::forget_damaged(int index, std::span<const Wanted> wanted, const Batch& batch) {
  Entry& here = entry(index);
  for (size_t i = 0; i < batch.results.size(); ++i) {
    if (batch.results[i] != FetchResult::kDamaged) continue;
    const Head& head = wanted[batch.indices[i]].order.head;
    here.place->forget(head.name, head.kind);
    if (here.place->tells_damage()) continue;
    ++here.untold_damage;
    if (now_() - here.told_damage_at < kSecondsBetweenDamageLines) continue;
    here.told_damage_at = now_();
    log::warn(
        "prompt cache: {}: {} damaged (checksum), the last {}: forgotten and not used",
        here.place->label(),
        here.untold_damage == 1 ? "a record is" : fmt::format("{} records are", here.untold_damage),
        head.name.hex());
    here.untold_damage = 0;
  }
}

void Places::fetch(std::span<const Wanted> wanted, const Done& done) {
  std::vector<int> where;
  for (const Wanted& each : wanted) where.push_back(each.place);
  bool has_ended = false;
  for (int index = 0; index < size() && !has_ended; ++index) {
    Batch batch;
    for (size_t i = 0; i < where.size(); ++i) {
      if (where[i] == index) batch.indices.push_back(i);
    }
    if (batch.indices.empty()) continue;
    batch.results.assign(batch.indices.size(), FetchResult::kMissing);
    batch.next.assign(batch.indices.size(), kNotLooked);
    if (is_readable(entry(index))) fetch_from(index, wanted, batch, done);
    forget_damaged(index, wanted, batch);
    has_ended = batch.has_ended;

    if (!has_ended) look_on(index, wanted, batch, done);
    has_ended = batch.has_ended;
    for (size_t i = 0; i < batch.indices.size(); ++i) where[batch.indices[i]] = batch.next[i];
  }
  // What is nowhere to begin with.
  for (size_t i = 0; i < wanted.size() && !has_ended; ++i) {
    if (wanted[i].place == kNowhere) has_ended = !done(i, FetchResult::kMissing, kNowhere);
  }
}

// ---- writing ----

OfferResult Places::offer(int index, const Head& head, std::span<const std::byte> payload,
                          double seconds, const std::function<bool()>& is_intact) {
  Entry& here = entry(index);
  if (!is_writable(here)) return OfferResult::kFailed;
  const OfferResult result = here.place->offer(head, payload, seconds, is_intact);
  if (result == OfferResult::kFailed) {
    settle(here, here.offering, failed(why(*here.place, "it cannot be written")));
  } else if (result == OfferResult::kTaken) {
    settle(here, here.offering, Status());
  }
  return result;
}

std::vector<OfferResult> Places::offer_to_all(const Head& head, std::span<const std::byte> payload,
                                              double seconds,
                                              const std::function<bool()>& is_intact) {
  std::vector<OfferResult> results(places_.size(), OfferResult::kRefused);
  bool has_changed = false;
  const auto still_intact = [&] {
    has_changed = has_changed || !is_intact();
    return !has_changed;
  };
  for (int index = 0; index < size() && !has_changed; ++index) {
    results[static_cast<size_t>(index)] = offer(index, head, payload, seconds, still_intact);
  }
  return results;
}

void Places::offer_hit(const Head& head, std::span<const std::byte> payload, double seconds,
                       const std::function<bool()>& is_intact) {
  for (int index = 0; index < size(); ++index) {
    if (entry(index).takes_hits) offer(index, head, payload, seconds, is_intact);
  }
}

void Places::forget(const Name& name, Kind kind) {
  for (Entry& each : places_) {
    if (is_readable(each)) each.place->forget(name, kind);
  }
}

}  // namespace wideep::store
