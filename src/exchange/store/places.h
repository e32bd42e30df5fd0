// SPDX-License-Identifier: Apache-2.0
//
// All places of a rank, the nearest first. A record comes from the first place that has it; what
// turns out to be missing or damaged there comes from a later one. A place that does not work is
// left alone for a while, with one line when that begins and one when it ends.
//
//   where = places.find(heads)
//   places.predicted_seconds(heads, where)     cheaper than computing them?
//   places.fetch(wanted, done)
//   places.offer_to_all(head, payload, seconds, is_intact)
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "store/fetch_price.h"
#include "store/outage.h"
#include "store/place.h"

namespace wideep::store {

// What a fetch takes before it was measured, on common hardware.
inline constexpr PlacePrice kHostPrice{.latency_seconds = 2e-5, .seconds_per_byte = 1.0 / 5e9};
inline constexpr PlacePrice kDiskPrice{.latency_seconds = 1e-3, .seconds_per_byte = 1.0 / 1e9};
inline constexpr PlacePrice kServerPrice{.latency_seconds = 2e-3, .seconds_per_byte = 1.0 / 3e8};

struct ListedPlace {
  std::unique_ptr<Place> place;
  PlacePrice expected;
  bool takes_hits = false;  // what a later place had is offered to it
};

struct Wanted {
  FetchOrder order;
  int place = -1;  // of find()
};

class Places {
 public:
  static constexpr int kNowhere = -1;
  static constexpr int kMaxSlowFinds = 3;
  // Of a record, once. place: that had it; kNowhere unless it is whole. False: no more are wanted.
  using Done = std::function<bool(size_t index, FetchResult result, int place)>;
  using Clock = std::function<double()>;  // seconds, steady

  explicit Places(std::vector<ListedPlace> places, Clock now = steady_seconds);

  int size() const { return static_cast<int>(places_.size()); }
  Place& place(int index) { return *places_[static_cast<size_t>(index)].place; }
  const Place& place(int index) const { return *places_[static_cast<size_t>(index)].place; }

  // [heads] the first place that has it, or kNowhere. A search that a place ended by its limit is
  // no failure of it before kMaxSlowFinds in a row.
  std::vector<int> find(std::span<const Head> heads) { return find_from(0, heads); }

  // For those that are somewhere.
  double predicted_seconds(std::span<const Head> heads, std::span<const int> where) const;
  PlacePrice price(int index) const;

  // Place by place, so not in order if a nearer place has some behind those of a farther one. The
  // first of a place that is not whole there is looked for in later ones at once, and where they do
  // not have it `done` is told: who has no use for the rest then ends the fetch, in all places.
  void fetch(std::span<const Wanted> wanted, const Done& done);

  // A place that is left alone at present: kFailed. Only what is taken ends that: a place may know
  // a record that it has, and still have no room for another.
  OfferResult offer(int index, const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact);
  // [places] As long as the payload is intact: behind that kRefused.
  std::vector<OfferResult> offer_to_all(const Head& head, std::span<const std::byte> payload,
                                        double seconds, const std::function<bool()>& is_intact);
  // What a later place had, to those before it that take hits.
  void offer_hit(const Head& head, std::span<const std::byte> payload, double seconds,
                 const std::function<bool()>& is_intact);
  void forget(const Name& name, Kind kind);

  // Whether it is left alone at present, or only not written.
  bool is_out(int index) const;

  static double steady_seconds();

 private:
  struct Entry {
    std::unique_ptr<Place> place;
    FetchPrice price;
    bool takes_hits = false;
    // Apart, as a place may find what it cannot read, and read where it cannot write.
    Outage finding, fetching, offering;
    int slow_finds = 0;  // in a row
    double out_since = 0.0;
    double told_damage_at = -1e9;
    uint64_t untold_damage = 0;

    bool is_out() const { return finding.is_out() || fetching.is_out() || offering.is_out(); }
  };

  // A fetch from one place.
  struct Batch {
    std::vector<size_t> indices;       // of the wanted ones
    std::vector<FetchResult> results;  // kMissing: also those that were not reached
    std::vector<int> next;             // where to look for it then; kNotLooked: nobody has
    bool has_ended = false;            // the caller wants no more
  };
  static constexpr int kNotLooked = -2;

  Entry& entry(int index) { return places_[static_cast<size_t>(index)]; }
  const Entry& entry(int index) const { return places_[static_cast<size_t>(index)]; }
  bool is_readable(const Entry& entry) const;
  bool is_writable(const Entry& entry) const;
  void settle(Entry& entry, Outage& outage, const Status& status);
  void settle_find(Entry& entry, const PlaceCounts& before);
  std::vector<int> find_from(int first, std::span<const Head> heads);
  void fetch_from(int index, std::span<const Wanted> wanted, Batch& batch, const Done& done);
  void look_on(int index, std::span<const Wanted> wanted, Batch& batch, const Done& done);
  void forget_damaged(int index, std::span<const Wanted> wanted, const Batch& batch);

  std::vector<Entry> places_;
  Clock now_;
};

}  // namespace wideep::store
