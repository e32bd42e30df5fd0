// SPDX-License-Identifier: Apache-2.0
//
// Random work is held after every step against a list that is searched from the front: which pages
// are used, kept, found and evicted. The examples are the cases in which one page could be taken
// for another: equal tokens after another prefix, in another role, or again after the page was
// evicted. A failure is an answer computed from another request's context.
#include "schedule/page_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace wideep::engine {
namespace {

using PageId = PageCache::PageId;
using Tokens = std::vector<int32_t>;

Tokens tokens_of(int32_t value) { return Tokens(kernels::kPageTokens, value); }

PageCache cache_of(int max_pages, int ranks = 1) {
  return PageCache(64, max_pages, std::vector<std::byte*>(static_cast<size_t>(ranks)));
}

TEST(PageCache, FindsWhatFollowsTheSameTokens) {
  PageCache cache = cache_of(4);
  const PageId first = cache.take(0), second = cache.take(0);
  const auto after_first = cache.enter(first, PageCache::kRoot, tokens_of(1), 0);
  cache.enter(second, after_first, tokens_of(2), 0);
  EXPECT_EQ(cache.find(PageCache::kRoot, tokens_of(1), 0), first);
  EXPECT_EQ(cache.find(after_first, tokens_of(2), 0), second);
  EXPECT_FALSE(cache.find(PageCache::kRoot, tokens_of(2), 0).has_value());
  EXPECT_FALSE(cache.find(PageCache::kRoot, tokens_of(1), 7).has_value());  // another role
  Tokens other = tokens_of(1);
  other.back() = 2;
  EXPECT_FALSE(cache.find(PageCache::kRoot, other, 0).has_value());
}

TEST(PageCache, KeepsKnownPagesUntilRoomIsWanted) {
  PageCache cache = cache_of(3);
  std::vector<PageId> pages;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(cache.take(0));
    cache.enter(pages.back(), PageCache::kRoot, tokens_of(i), 0);
  }
  for (const PageId page : {pages[1], pages[0], pages[2]}) cache.release(page);
  EXPECT_EQ(cache.used(0), 0);
  EXPECT_EQ(cache.kept(0), 3);
  cache.share(pages[1]);
  EXPECT_EQ(cache.take(0), pages[0]);  // the first to go of those that nobody uses
  EXPECT_EQ(cache.num_evicted(), 1);
  EXPECT_FALSE(cache.find(PageCache::kRoot, tokens_of(0), 0).has_value());
  EXPECT_TRUE(cache.find(PageCache::kRoot, tokens_of(1), 0).has_value());
  EXPECT_TRUE(cache.find(PageCache::kRoot, tokens_of(2), 0).has_value());
  EXPECT_EQ(cache.available(0), 1);
}

TEST(PageCache, OfTwoPagesWithOneContentTheFirstIsKnown) {
  PageCache cache = cache_of(2);
  const PageId first = cache.take(0), second = cache.take(0);
  const auto prefix = cache.enter(first, PageCache::kRoot, tokens_of(1), 0);
  EXPECT_EQ(cache.enter(second, PageCache::kRoot, tokens_of(1), 0), prefix);
  cache.release(second);
  EXPECT_EQ(cache.kept(0), 0);
  cache.forget(first);
  cache.release(first);
  EXPECT_EQ(cache.kept(0), 0);
  EXPECT_FALSE(cache.find(PageCache::kRoot, tokens_of(1), 0).has_value());
}

TEST(PageCache, SaysWhichPrefixesAreGone) {
  PageCache cache = cache_of(2);
  std::vector<PageCache::Prefix> gone;
  cache.on_forget([&](PageCache::Prefix prefix) { gone.push_back(prefix); });
  const PageId first = cache.take(0), second = cache.take(0);
  const auto before = cache.enter(first, PageCache::kRoot, tokens_of(1), 0);
  const auto after = cache.enter(second, before, tokens_of(2), 0);
  cache.release(second);
  EXPECT_TRUE(gone.empty());  // kept
  cache.take(0);              // evicts it
  EXPECT_EQ(gone, std::vector{after});
  cache.forget(first);
  cache.forget(first);  // no effect
  EXPECT_EQ(gone, (std::vector{after, before}));
}

// A prefix that is gone does not come back, though its tokens may: what followed it then is not
// what follows it now.
TEST(PageCache, ContentsThatComeAgainAreNewPrefixes) {
  PageCache cache = cache_of(2);
  const PageId first = cache.take(0), second = cache.take(0);
  const auto before = cache.enter(first, PageCache::kRoot, tokens_of(1), 0);
  cache.enter(second, before, tokens_of(2), 0);
  cache.release(first);
  const PageId again = cache.take(0);
  const auto after = cache.enter(again, PageCache::kRoot, tokens_of(1), 0);
  EXPECT_NE(after, before);
  EXPECT_FALSE(cache.find(after, tokens_of(2), 0).has_value());
}

TEST(PageCache, SaltsShareNothing) {
  PageCache cache = cache_of(4);
  const PageId plain = cache.take(0), salted = cache.take(0);
  const auto prefix = cache.enter(plain, PageCache::kRoot, tokens_of(1), 0);
  EXPECT_FALSE(cache.find(PageCache::kRoot, tokens_of(1), 0, "a").has_value());
  const auto salted_prefix = cache.enter(salted, PageCache::kRoot, tokens_of(1), 0, "a");
  EXPECT_NE(prefix, salted_prefix);
  EXPECT_EQ(cache.find(PageCache::kRoot, tokens_of(1), 0, "a"), salted);
  EXPECT_EQ(cache.find(PageCache::kRoot, tokens_of(1), 0), plain);
  const PageId after = cache.take(0);
  cache.enter(after, salted_prefix, tokens_of(2), 0, "a");
  EXPECT_EQ(cache.find(salted_prefix, tokens_of(2), 0, "a"), after);
  EXPECT_FALSE(cache.find(prefix, tokens_of(2), 0).has_value());
}

TEST(PageCache, AVersionChangesBeforeAPageGetsOtherContents) {
  PageCache cache = cache_of(1);
  const PageId page = cache.take(0);
  cache.enter(page, PageCache::kRoot, tokens_of(1), 0);
  const KeptBytes kept = {.head = {},
                          .bytes = cache.bytes(page),
                          .version = &cache.version(page),
                          .seen = cache.version(page).now()};
  cache.release(page);
  cache.share(page);
  EXPECT_TRUE(kept.is_intact());
  cache.forget(page);
  cache.release(page);
  EXPECT_TRUE(kept.is_intact());  // as long as nobody takes it
  EXPECT_EQ(cache.take(0), page);
  EXPECT_FALSE(kept.is_intact());
}

// The same, slowly: a list of what is known, searched from the front.
class SlowCache {
 public:
  struct Page {
    int rank = 0, users = 0;
    int64_t released = 0;  // when
    bool known = false;
    PageCache::Prefix before = 0;
    Tokens tokens;
    int role = 0;
  };
  std::map<PageId, Page> pages;
  int64_t clock = 0;

  int used(int rank) const {
    return static_cast<int>(std::ranges::count_if(pages, [&](const auto& each) {
      return each.second.rank == rank && each.second.users > 0;
    }));
  }
  int kept(int rank) const {
    return static_cast<int>(std::ranges::count_if(pages, [&](const auto& each) {
      return each.second.rank == rank && each.second.users == 0 && each.second.known;
    }));
  }
  std::optional<PageId> find(PageCache::Prefix before, const Tokens& tokens, int role) const {
    for (const auto& [id, page] : pages) {
      if (page.known && page.before == before && page.tokens == tokens && page.role == role) {
        return id;
      }
    }
    return std::nullopt;
  }
};

TEST(PageCache, AgreesWithASlowModelUnderRandomWork) {
  std::mt19937 rng(1);
  for (int round = 0; round < 20; ++round) {
    const int max_pages = 1 + static_cast<int>(rng() % 12), ranks = 1 + static_cast<int>(rng() % 3);
    PageCache cache = cache_of(max_pages, ranks);
    SlowCache slow;
    std::vector<PageId> held;  // once for each use
    std::vector<PageCache::Prefix> prefixes = {PageCache::kRoot};
    int64_t evicted = 0;
    for (int step = 0; step < 400; ++step) {
      const int rank = static_cast<int>(rng() % ranks);
      const Tokens tokens = tokens_of(static_cast<int32_t>(rng() % 3));
      const auto before = prefixes[rng() % prefixes.size()];
      const int role = static_cast<int>(rng() % 2);
      switch (rng() % 4) {
        case 0: {  // take
          if (cache.available(rank) == 0) break;
          const bool evicts = slow.used(rank) + slow.kept(rank) == max_pages;
          const PageId page = cache.take(rank);
          SlowCache::Page& found = slow.pages[page];
          ASSERT_EQ(found.users, 0);
          ASSERT_EQ(found.known, evicts);
          if (evicts) {  // no kept page was released before it
            for (const auto& [id, each] : slow.pages) {
              if (each.rank != rank || each.users > 0 || !each.known) continue;
              ASSERT_GE(each.released, found.released);
            }
            ++evicted;
          }
          found = {.rank = rank, .users = 1, .tokens = {}};
          held.push_back(page);
          break;
        }
        case 1: {  // find and share
          const auto found = cache.find(before, tokens, role);
          ASSERT_EQ(found, slow.find(before, tokens, role));
          if (!found) break;
          cache.share(*found);
          ++slow.pages[*found].users;
          held.push_back(*found);
          break;
        }
        case 2: {  // enter
          if (held.empty()) break;
          const PageId page = held[rng() % held.size()];
          if (slow.pages[page].known) break;
          const auto known = slow.find(before, tokens, role);
          const auto prefix = cache.enter(page, before, tokens, role);
          ASSERT_EQ(prefix, cache.prefix(known.value_or(page)));
          prefixes.push_back(prefix);
          SlowCache::Page& entered = slow.pages[page];
          if (known) break;
          entered.known = true;
          entered.before = before;
          entered.tokens = tokens;
          entered.role = role;
          break;
        }
        default: {  // release
          if (held.empty()) break;
          const size_t which = rng() % held.size();
          cache.release(held[which]);
          SlowCache::Page& released = slow.pages[held[which]];
          if (--released.users == 0) released.released = ++slow.clock;
          held.erase(held.begin() + static_cast<int64_t>(which));
        }
      }
      for (int each = 0; each < ranks; ++each) {
        ASSERT_EQ(cache.used(each), slow.used(each));
        ASSERT_EQ(cache.kept(each), slow.kept(each));
      }
      ASSERT_EQ(cache.num_evicted(), evicted);
    }
  }
}

}  // namespace
}  // namespace wideep::engine
