// SPDX-License-Identifier: Apache-2.0
//
// All batches of KV events in one order, with their numbers: the last ones, for readers at their own
// pace, and what all of them together say, for readers that come late or have fallen behind.
//
//   ranks' changes ──→ take() ──→ indices of pages ──→ snapshot(), restate()
//                          └────→ the last batches ──→ after(n)
//
// Whoever reads has the number of the last batch it has seen. If the next ones are gone, it begins
// again: with a snapshot, or, a publisher, with restate(). So a reader may know too little for a
// moment, but it is never wrong for longer than it is behind.
//
// Numbers begin with the time, so that they ascend over the processes of a service, which tell less
// than one batch a microsecond: a reader of an earlier one sees a gap. All are below 2^53, which
// programs that read JSON numbers as doubles need.
//
// Thread safety: all but begin().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "kv_events/event.h"
#include "kv_events/page_index.h"
#include "schedule/page_changes.h"

namespace wideep::kv_events {

struct LogLimits {
  size_t batches = 10'000;
  size_t pages = 1 << 17;        // of all batches that are kept; about 300 bytes each
  size_t restated_pages = 1024;  // of a batch of restate()
};

class EventLog {
 public:
  // num_ranks: those that have requests of their own.
  EventLog(int num_ranks, const LogLimits& limits);

  // Numbers begin, with the microseconds since 1970; no rank knows a page. Called before everything
  // else, in the process that tells.
  void begin(int64_t unix_us);

  // is_cleared: before the changes: none is known any more. REQUIRES: 0 ≤ rank < num_ranks.
  void take(int rank, bool is_cleared, std::span<const engine::PageChange> changes);
  // A rank has lost its pages, which is said also if it had none. REQUIRES: as take().
  void clear(int rank);

  // The number before that of the first batch.
  uint64_t origin() const { return origin_; }
  // The number of the last batch.
  uint64_t last() const;
  // The next batches after that number, one at least, and then at most with max_pages in all;
  // empty: there is none yet. nullopt: they are not kept any more, or the number is none of this
  // log.
  std::optional<std::vector<SharedBatch>> after(uint64_t sequence, size_t max_pages) const;
  // All that are kept from that number on.
  std::vector<SharedBatch> since(uint64_t sequence) const;
  // Until there is a batch after that number, for at most so long.
  void wait(uint64_t sequence, std::chrono::milliseconds limit) const;

  struct Snapshot {
    uint64_t sequence = 0;  // it has all batches up to this one
    bool is_complete = true;
    std::vector<std::vector<SharedPage>> ranks;  // [num_ranks] a page comes after its parent
  };
  // At most max_pages, of each rank the same share.
  Snapshot snapshot(size_t max_pages) const;

  // Says all pages anew, after AllBlocksCleared, as batches of their own, and returns these: they
  // may be too many to be kept.
  std::vector<SharedBatch> restate();

 private:
  SharedBatch add(int rank, std::vector<Event> events);

  const LogLimits limits_;
  uint64_t origin_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable added_;
  // ---- guarded by mutex_ ----
  std::vector<PageIndex> ranks_;
  std::deque<SharedBatch> batches_;  // with successive numbers, up to last_
  size_t num_pages_ = 0;             // of batches_
  uint64_t last_ = 0;
};

}  // namespace wideep::kv_events
