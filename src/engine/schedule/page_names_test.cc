// SPDX-License-Identifier: Apache-2.0
//
// Two caches that have met the same pages in another order give them the same names, and nothing
// else gives them: not another salt, role or class. What is told, replayed, is what can be found. A
// failure takes one tenant's page for another's, or asks a rank for pages that it has no more.
#include "schedule/page_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "schedule/page_cache.h"

namespace wideep::engine {
namespace {

using store::Name;

struct NamedCache {
  PageCache cache{64, 8, {nullptr}, "class"};

  // A page in the index; returns it and its prefix.
  std::pair<int32_t, PageCache::Prefix> add(PageCache::Prefix before, int32_t token, int role = 0,
                                            const std::string& salt = {}) {
    const int32_t page = cache.take(0);
    const std::vector<int32_t> tokens(store::kPageTokens, token);
    return {page, cache.enter(page, before, tokens, role, salt)};
  }
  Name name(int32_t page) const { return cache.named(page)->head.name; }
};

TEST(PageNames, AreThoseOfTheContents) {
  NamedCache a, b;
  const auto [first, prefix] = a.add(PageCache::kRoot, 1);
  const auto [second, after] = a.add(prefix, 2);
  b.add(PageCache::kRoot, 7);
  const auto [other_first, other_prefix] = b.add(PageCache::kRoot, 1);
  const auto [other_second, other_after] = b.add(other_prefix, 2);
  EXPECT_EQ(a.name(first), b.name(other_first));
  EXPECT_EQ(a.name(second), b.name(other_second));
  const store::Head& head = b.cache.named(other_second)->head;
  EXPECT_EQ(head.before, a.name(first));
  EXPECT_EQ(head.page, 1u);
  EXPECT_EQ(head.tokens[63], 2);
  std::array<int32_t, store::kPageTokens> tokens;
  tokens.fill(1);
  EXPECT_EQ(a.name(first), store::page_name(store::root_name("class", ""), 0, tokens));
}

// Of one who hears of the changes only now.
TEST(PageNames, AreToldAgainInOrder) {
  NamedCache names;
  const auto [first, prefix] = names.add(PageCache::kRoot, 1);
  const auto [gone, unused] = names.add(prefix, 2);
  const auto [second, after] = names.add(prefix, 3);
  const auto [untold, last] = names.add(after, 4);
  for (const int32_t page : {first, gone, second}) names.cache.tell(page);
  names.cache.take_changes();
  names.cache.forget(gone);
  names.cache.tell_again();
  const std::vector<PageChange> changes = names.cache.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].name, names.name(first));
  EXPECT_EQ(changes[1].name, names.name(second));
  EXPECT_EQ(changes[1].before, changes[0].name);
  EXPECT_TRUE(changes[0].is_known && changes[1].is_known);
  names.cache.tell(untold);
  EXPECT_EQ(names.cache.take_changes().size(), 1u);
}

TEST(PageNames, DifferBySaltRoleAndClass) {
  NamedCache cache;
  PageCache other_class(64, 1, {nullptr}, "another class");
  std::set<Name> names;
  const auto [plain, prefix] = cache.add(PageCache::kRoot, 1);
  const auto [salted, salted_prefix] = cache.add(PageCache::kRoot, 1, 0, "a");
  names.insert({cache.name(plain), cache.name(salted)});
  names.insert(cache.name(cache.add(PageCache::kRoot, 1, 0, "b").first));
  names.insert(cache.name(cache.add(PageCache::kRoot, 1, 9).first));
  const int32_t page = other_class.take(0);
  other_class.enter(page, PageCache::kRoot, std::vector<int32_t>(store::kPageTokens, 1), 0);
  names.insert(other_class.named(page)->head.name);
  names.insert(cache.name(cache.add(prefix, 2).first));
  const int32_t after_salted = cache.add(salted_prefix, 2).first;
  names.insert(cache.name(after_salted));
  EXPECT_EQ(names.size(), 7u);
  EXPECT_TRUE(cache.cache.named(after_salted)->is_salted);
  EXPECT_FALSE(cache.cache.named(plain)->is_salted);
}

TEST(PageNames, WithoutAClassThereAreNone) {
  PageCache cache(64, 2, {nullptr});
  const int32_t page = cache.take(0);
  cache.enter(page, PageCache::kRoot, std::vector<int32_t>(store::kPageTokens, 1), 0);
  EXPECT_EQ(cache.named(page), nullptr);
  EXPECT_EQ(cache.tell(page), nullptr);
  cache.forget(page);
  EXPECT_TRUE(cache.take_changes().empty());
}

TEST(PageNames, AreToldOnceAndOnceAsGone) {
  NamedCache cache;
  const auto [first, prefix] = cache.add(PageCache::kRoot, 1, 0, "a");
  const auto [second, after] = cache.add(prefix, 2);
  const auto [untold, last] = cache.add(after, 3);
  const std::vector<Name> names = {cache.name(first), cache.name(second)};
  EXPECT_NE(cache.cache.tell(first), nullptr);
  EXPECT_EQ(cache.cache.tell(first), nullptr);
  EXPECT_NE(cache.cache.tell(second), nullptr);
  cache.cache.forget(untold);
  auto changes = cache.cache.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(changes[i].is_known && changes[i].is_salted);
    EXPECT_EQ(changes[i].name, names[i]);
    EXPECT_EQ(changes[i].page, static_cast<int32_t>(i));
  }
  EXPECT_EQ(changes[1].before, names[0]);
  // The second cannot be found any more either.
  cache.cache.forget(first);
  changes = cache.cache.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(changes[i].is_known);
    EXPECT_EQ(changes[i].name, names[1 - i]);
  }
  EXPECT_EQ(cache.cache.named(second), nullptr);
  const auto [again, again_prefix] = cache.add(after, 4);  // after a page without a name
  EXPECT_EQ(cache.cache.named(again), nullptr);
  cache.cache.forget(second);
  EXPECT_TRUE(cache.cache.take_changes().empty());
}

}  // namespace
}  // namespace wideep::engine
