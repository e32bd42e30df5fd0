// SPDX-License-Identifier: Apache-2.0
#include "kv_events/page_index.h"

#include <gmock/gmock.h>

#include "kv_events/event_log_testing.h"

namespace wideep::kv_events {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<engine::PageChange> changes(std::initializer_list<engine::PageChange> all) {
  return all;
}

uint64_t hash(int sequence, int page) { return hash_of(test_name(sequence, page)); }

TEST(PageIndex, PagesThatFollowEachOtherAreOneEvent) {
  PageIndex index;
  const auto events = index.take(changes({known(1, 0), known(1, 1), known(2, 0), known(1, 2)}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, Event::kStored);
  EXPECT_THAT(events[0].hashes, ElementsAre(hash(1, 0), hash(1, 1)));
  EXPECT_EQ(events[0].parent, std::nullopt);
  EXPECT_EQ(events[0].tokens.size(), 2 * store::kPageTokens);
  EXPECT_EQ(events[0].tokens.back(), 101);
  EXPECT_EQ(events[1].parent, std::nullopt);
  EXPECT_EQ(events[2].parent, hash(1, 1));
  EXPECT_EQ(index.size(), 4u);
}

TEST(PageIndex, SaysNothingTwiceAndNothingOfWhatItHasNotSaid) {
  PageIndex index;
  index.take(changes({known(1, 0), known(1, 1)}));
  EXPECT_THAT(index.take(changes({known(1, 0), gone(3, 0)})), IsEmpty());
  const auto events = index.take(changes({gone(1, 1), gone(1, 0), gone(1, 0)}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::kRemoved);
  EXPECT_THAT(events[0].hashes, ElementsAre(hash(1, 1), hash(1, 0)));
  EXPECT_EQ(index.size(), 0u);
}

TEST(PageIndex, SaltedPagesAreNeverTold) {
  PageIndex index;
  engine::PageChange stored = known(1, 0), removed = gone(1, 0);
  stored.is_salted = removed.is_salted = true;
  EXPECT_THAT(index.take(changes({stored, removed})), IsEmpty());
  EXPECT_EQ(index.size(), 0u);
}

TEST(PageIndex, APageComesAfterItsParent) {
  PageIndex index;
  index.take(changes({known(1, 2), known(2, 0), known(1, 1), known(1, 0)}));
  std::vector<SharedPage> pages = index.pages();
  sort_parents_first(&pages, 3);
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages[0]->hash, hash(1, 0));
  EXPECT_EQ(pages[1]->hash, hash(2, 0));
  EXPECT_EQ(pages[2]->hash, hash(1, 1));
  const std::vector<Event> events = stored_events(pages);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].parent, hash(1, 0));
}

}  // namespace
}  // namespace wideep::kv_events
