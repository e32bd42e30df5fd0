// SPDX-License-Identifier: Apache-2.0
#include "kv_events/event_log.h"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

#include "kv_events/event_log_testing.h"

namespace wideep::kv_events {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000;  // microseconds

// What a reader knows who applies all batches in order.
class LogReader {
 public:
  void take(const Batch& batch) {
    sequence = batch.sequence;
    for (const Event& each : batch.events) {
      std::set<uint64_t>& hashes = known[batch.rank];
      if (each.kind == Event::kCleared) hashes.clear();
      for (const uint64_t hash : each.hashes) {
        each.kind == Event::kStored ? void(hashes.insert(hash)) : void(hashes.erase(hash));
      }
    }
  }
  void take(const EventLog::Snapshot& snapshot) {
    sequence = snapshot.sequence;
    for (size_t i = 0; i < snapshot.ranks.size(); ++i) {
      std::set<uint64_t>& hashes = known[static_cast<int>(i)];
      hashes.clear();
      for (const SharedPage& each : snapshot.ranks[i]) hashes.insert(each->hash);
    }
  }
  uint64_t sequence = 0;
  std::map<int, std::set<uint64_t>> known;
};

TEST(EventLog, BeginsWithRanksThatKnowNothing) {
  EventLog log(2, {});
  log.begin(kNow);
  EXPECT_EQ(log.origin(), uint64_t{kNow});
  EXPECT_LT(log.last(), uint64_t{1} << 53);
  const auto batches = log.after(log.origin(), 1);
  ASSERT_TRUE(batches.has_value());
  ASSERT_EQ(batches->size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ((*batches)[rank]->rank, rank);
    EXPECT_EQ((*batches)[rank]->sequence, log.origin() + 1 + rank);
    ASSERT_EQ((*batches)[rank]->events.size(), 1u);
    EXPECT_EQ((*batches)[rank]->events[0].kind, Event::kCleared);
  }
}

TEST(EventLog, WhatReadersNeedNotKnowIsNoBatch) {
  EventLog log(1, {});
  log.begin(kNow);
  const uint64_t before = log.last();
  engine::PageChange salted = known(1, 0);
  salted.is_salted = true;
  log.take(0, false, std::span(&salted, 1));
  log.take(0, false, {});
  EXPECT_EQ(log.last(), before);
  EXPECT_EQ(log.after(before, 10)->size(), 0u);
}

TEST(EventLog, ARankThatKnowsNothingHasNothingToForget) {
  EventLog log(1, {});
  log.begin(kNow);
  const engine::PageChange change = known(1, 0);
  for (int i = 0; i < 2; ++i) log.take(0, true, std::span(&change, 1));
  const auto batches = log.since(log.last() - 1);
  ASSERT_EQ(batches.size(), 2u);
  ASSERT_EQ(batches[0]->events.size(), 1u);
  EXPECT_EQ(batches[0]->events[0].kind, Event::kStored);
  ASSERT_EQ(batches[1]->events.size(), 2u);
  EXPECT_EQ(batches[1]->events[0].kind, Event::kCleared);
}

// For readers that know no ranks: one that forgets comes before all that is known.
TEST(EventLog, SaysAnewFirstThatAllForget) {
  EventLog log(2, {});
  log.begin(kNow);
  const engine::PageChange change = known(1, 0);
  for (int rank = 0; rank < 2; ++rank) log.take(rank, false, std::span(&change, 1));
  const auto batches = log.restate();
  ASSERT_EQ(batches.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batches[i]->rank, static_cast<int>(i % 2));
    EXPECT_EQ(batches[i]->events[0].kind, i < 2 ? Event::kCleared : Event::kStored);
  }
}

TEST(EventLog, KeepsTheLastBatchesByTheirNumberAndTheirPages) {
  EventLog log(1, {.batches = 3, .pages = 4});
  log.begin(kNow);
  const uint64_t first = log.last();
  for (int i = 0; i < 3; ++i) {
    const engine::PageChange change = known(1, i);
    log.take(0, false, std::span(&change, 1));
  }
  EXPECT_EQ(log.after(first, 100)->size(), 3u);
  EXPECT_EQ(log.after(first, 2)->size(), 2u);
  EXPECT_EQ(log.after(first, 0)->size(), 1u);
  EXPECT_EQ(log.after(first - 1, 100), std::nullopt);
  EXPECT_EQ(log.after(log.last() + 1, 100), std::nullopt);
  EXPECT_EQ(log.after(0, 100), std::nullopt);
  const std::vector<engine::PageChange> more = {known(2, 0), known(2, 1)};
  log.take(0, false, more);
  EXPECT_EQ(log.after(first, 100), std::nullopt);
  EXPECT_EQ(log.since(0).size(), 3u);
  EXPECT_EQ(log.since(log.last()).size(), 1u);
  EXPECT_EQ(log.since(log.last() + 1).size(), 0u);
  const std::vector<engine::PageChange> others = {known(3, 0), known(3, 1), known(3, 2)};
  log.take(0, false, others);
  EXPECT_EQ(log.since(0).size(), 1u);
}

TEST(EventLog, ASnapshotSaysWhetherItIsWhole) {
  EventLog log(2, {});
  log.begin(kNow);
  const std::vector<engine::PageChange> changes = {known(1, 1), known(1, 0), known(1, 2)};
  log.take(1, false, changes);
  const EventLog::Snapshot whole = log.snapshot(100);
  EXPECT_EQ(whole.sequence, log.last());
  EXPECT_TRUE(whole.is_complete);
  EXPECT_EQ(whole.ranks[0].size(), 0u);
  ASSERT_EQ(whole.ranks[1].size(), 3u);
  EXPECT_EQ(whole.ranks[1][0]->page, 0);
  const EventLog::Snapshot part = log.snapshot(4);
  EXPECT_FALSE(part.is_complete);
  ASSERT_EQ(part.ranks[1].size(), 2u);
  EXPECT_EQ(part.ranks[1][1]->page, 1);
}

TEST(EventLog, WhoBeginsAgainKnowsTheSame) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  EventLog log(2, {.batches = 5, .pages = 50, .restated_pages = 3});
  log.begin(kNow);
  LogReader every, sleepy, restated;
  int gaps = 0;
  for (int step = 0; step < 3000; ++step) {
    std::vector<engine::PageChange> changes;
    for (int i = below(6); i > 0; --i) {
      const int sequence = below(5), page = below(6);
      changes.push_back(below(2) == 0 ? known(sequence, page) : gone(sequence, page));
    }
    log.take(below(2), below(50) == 0, changes);
    if (step == 0) every.sequence = restated.sequence = log.origin();
    const auto all = log.after(every.sequence, 1000);
    ASSERT_TRUE(all.has_value());
    for (const SharedBatch& each : *all) every.take(*each);
    if (below(6) == 0) {
      if (const auto next = log.after(sleepy.sequence, 1000)) {
        for (const SharedBatch& each : *next) sleepy.take(*each);
      } else {
        sleepy.take(log.snapshot(1000));
        ++gaps;
      }
      EXPECT_EQ(sleepy.known, every.known);
    }
    if (below(200) == 0) {
      for (const SharedBatch& each : log.restate()) restated.take(*each);
      EXPECT_EQ(restated.known, every.known);
      EXPECT_EQ(restated.sequence, log.last());
      every.take(log.snapshot(1000));
    }
  }
  EXPECT_GT(gaps, 100);
}

}  // namespace
}  // namespace wideep::kv_events
