// SPDX-License-Identifier: Apache-2.0
//
// A place where records are kept by name: the memory of a node, a directory, a server of Redis'
// protocol, a peer. All are asked in the same way:
//
//   find     which records of a sequence it has
//   fetch    their bytes, checked
//   offer    a record to keep; the place may refuse
//   forget   one that turned out to be damaged
//
// Nothing of this is on a token's path: each rank has a thread for it (engine/run/prompt_store.h).
// Places are shared by processes that may die at any instruction: what one has half written is
// never read, and what it held is free again.
//
// Thread safety: one thread; several objects, in one process or many, may share what is behind.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/record.h"
#include "wideep/status.h"

namespace wideep::store {

enum class FetchResult : uint8_t {
  kWhole,
  kMissing,  // it is not there, or not all of the part, or another's tokens have the name
  kDamaged,  // checksum
};

enum class OfferResult : uint8_t {
  kTaken,
  kKnown,    // that part of it was there
  kRefused,  // all that is there is worth more, or it does not fit
  kFailed,   // the place does not work at present
};

struct FetchOrder {
  Head head;                  // as it must be, with the part that is wanted
  std::span<std::byte> into;  // [head.part.bytes()]; undefined after anything but kWhole
};

// Since this object was made.
struct PlaceCounts {
  uint64_t fetched = 0, fetched_bytes = 0;
  uint64_t taken = 0, taken_bytes = 0;
  uint64_t evicted = 0;     // records that gave way to others
  uint64_t damaged = 0;     // records whose bytes were not those that were written
  uint64_t foreign = 0;     // records of another class or version that were skipped
  uint64_t failures = 0;    // calls that failed, for want of the place
  uint64_t slow_finds = 0;  // that ended by their limit: the rest was not looked for
  double fetch_seconds = 0.0;

  PlaceCounts& operator+=(const PlaceCounts& more) {
    fetched += more.fetched;
    fetched_bytes += more.fetched_bytes;
    taken += more.taken;
    taken_bytes += more.taken_bytes;
    evicted += more.evicted;
    damaged += more.damaged;
    foreign += more.foreign;
    failures += more.failures;
    slow_finds += more.slow_finds;
    fetch_seconds += more.fetch_seconds;
    return *this;
  }
};

// What is there now, of all who share it.
struct PlaceSize {
  uint64_t records = 0, bytes = 0, max_bytes = 0;
};

class Place {
 public:
  virtual ~Place() = default;

  // "host", "disk", "redis": in metrics and lines.
  virtual std::string_view label() const = 0;

  // [heads] whether the place has the record with all of the part. It is allowed to be wrong, if
  // another process has changed something: fetch() decides. It takes no longer than the place's
  // own limit, which servers have (RedisOptions::find_timeout); what was not looked for by then is
  // not there (PlaceCounts::slow_finds).
  virtual std::vector<bool> find(std::span<const Head> heads) = 0;

  // In order. done: called for each, as soon as it is there; where it returns false no more are
  // read. Errors: the place does not work; those that are not done are as kMissing.
  virtual Status fetch(std::span<const FetchOrder> orders,
                       const std::function<bool(size_t index, FetchResult result)>& done) = 0;

  // seconds: what computing the page takes, of the record's value (evicted first: what saves the
  // fewest seconds per byte). is_intact: called after the payload was copied; false: it has changed
  // meanwhile, and nothing is kept.
  virtual OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                            const std::function<bool()>& is_intact) = 0;

  virtual void forget(const Name& name, Kind kind) = 0;

  virtual PlaceCounts counts() const = 0;
  // Why the last call that failed (PlaceCounts::failures) did, in a line; "": it does not say.
  virtual std::string_view trouble() const { return {}; }
  // Whether it has lines of its own for what is damaged: where it lies.
  virtual bool tells_damage() const { return false; }
  virtual PlaceSize size() = 0;
};

}  // namespace wideep::store
