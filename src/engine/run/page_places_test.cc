// SPDX-License-Identifier: Apache-2.0
//
// Owners with chosen loads and caches. A failure is a rank that everybody waits for because it alone
// has the prefix that all begin with, or a prefix that every rank computes although one has it.
#include "run/page_places.h"

#include <gtest/gtest.h>

#include <random>

namespace wideep::run {
namespace {

constexpr int kPage = store::kPageTokens;

// Tokens that begin alike for equal families.
std::vector<int32_t> prompt_of(int family, int pages, int more = 1, int own = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < pages * kPage; ++i) tokens.push_back(1000 * family + i);
  for (int i = 0; i < more; ++i) tokens.push_back(-own - i);
  return tokens;
}

store::Name name_of(const std::vector<int32_t>& prompt, int page, std::string_view salt = "") {
  store::PageWalk walk("class", salt, prompt);
  for (int i = 0; i < page; ++i) walk.next();
  return walk.next()->name;
}

// What a rank says when it knows the first pages, or some of them no more.
PagesChanged pages_of(const std::vector<int32_t>& prompt, int first, int last, bool known = true) {
  PagesChanged changed;
  for (int page = first; page < last; ++page) {
    engine::PageChange change;
    change.is_known = known;
    change.page = page;
    change.name = name_of(prompt, page);
    changed.changes.push_back(change);
  }
  return changed;
}

TEST(PagePlaces, TheLeastBusyOneGetsWhatNobodyKnows) {
  const PagePlaces places("class");
  const auto choice = places.choose({{0, 50}, {1, 40}, {2, 60}}, prompt_of(1, 3), "");
  EXPECT_EQ(choice.owner, 1);
  EXPECT_EQ(choice.known_tokens, 0);
}

TEST(PagePlaces, APrefixIsWorthItsTokens) {
  PagePlaces places("class");
  const auto prompt = prompt_of(1, 3);
  places.add(2, pages_of(prompt, 0, 3));
  EXPECT_EQ(places.choose({{0, 0}, {2, 3 * kPage - 1}}, prompt, "").owner, 2);
  EXPECT_EQ(places.choose({{0, 0}, {2, 3 * kPage}}, prompt, "").owner, 2);  // has less to do
  EXPECT_EQ(places.choose({{0, 0}, {2, 3 * kPage + 1}}, prompt, "").owner, 0);
  EXPECT_EQ(places.choose({{0, 0}, {2, 1}}, prompt, "").known_tokens, 3 * kPage);
  EXPECT_EQ(places.choose({{0, 0}, {2, 1}}, prompt, "a salt").owner, 0);
  EXPECT_EQ(places.choose({{0, 0}, {2, 1}}, prompt_of(2, 3), "").owner, 0);
}

TEST(PagePlaces, TheLastTokenIsComputedAnyway) {
  PagePlaces places("class");
  const auto prompt = prompt_of(1, 2, 0);
  places.add(0, pages_of(prompt, 0, 2));
  EXPECT_EQ(places.choose({{0, 0}}, prompt, "").known_tokens, kPage);
}

TEST(PagePlaces, OnlyPagesWithoutAGapCount) {
  PagePlaces places("class");
  const auto prompt = prompt_of(1, 5);
  places.add(0, pages_of(prompt, 0, 5));
  places.add(1, pages_of(prompt, 0, 5));
  places.add(1, pages_of(prompt, 2, 3, false));
  EXPECT_EQ(places.choose({{1, 0}}, prompt, "").known_tokens, 2 * kPage);
  EXPECT_EQ(places.choose({{0, 0}}, prompt, "").known_tokens, 5 * kPage);
  places.add(0, pages_of(prompt, 0, 1, false));
  EXPECT_EQ(places.choose({{0, 0}}, prompt, "").known_tokens, 0);
}

TEST(PagePlaces, ForgetsWhatCachesForget) {
  PagePlaces places("class");
  const auto prompt = prompt_of(1, 4);
  for (const int owner : {0, 1, 2}) places.add(owner, pages_of(prompt, 0, 4));
  places.add(0, pages_of(prompt, 0, 4));  // said twice
  EXPECT_EQ(places.num_names(), 4u);
  places.add(0, pages_of(prompt, 0, 4, false));
  places.clear(1);
  EXPECT_EQ(places.choose({{0, 0}}, prompt, "").known_tokens, 0);
  EXPECT_EQ(places.choose({{1, 0}}, prompt, "").known_tokens, 0);
  EXPECT_EQ(places.choose({{2, 0}}, prompt, "").known_tokens, 4 * kPage);
  PagesChanged cleared = pages_of(prompt, 0, 1);
  cleared.is_cleared = true;
  places.add(2, cleared);
  EXPECT_EQ(places.choose({{2, 0}}, prompt, "").known_tokens, kPage);
  EXPECT_EQ(places.num_names(), 1u);
}

// Owners that compute and answer what they get, and know what they have computed.
class SimulatedOwners {
 public:
  explicit SimulatedOwners(int count) {
    for (int owner = 0; owner < count; ++owner) tokens_[owner] = 0;
  }
  // Returns whom it went to. Checks the bound.
  int submit(const std::vector<int32_t>& prompt, int max_tokens) {
    const auto choice = places_.choose(tokens_, prompt, "");
    int64_t least = INT64_MAX;
    for (const auto& [owner, tokens] : tokens_) least = std::min(least, tokens);
    EXPECT_LE(tokens_[choice.owner], least + choice.known_tokens);
    tokens_[choice.owner] += static_cast<int64_t>(prompt.size()) + max_tokens - choice.known_tokens;
    const int pages = static_cast<int>(prompt.size()) / kPage;
    places_.add(choice.owner, pages_of(prompt, 0, pages));
    return choice.owner;
  }
  void compute(int64_t tokens) {
    for (auto& [owner, left] : tokens_) left = std::max<int64_t>(left - tokens, 0);
  }

 private:
  PagePlaces places_{"class"};
  std::map<int, int64_t> tokens_;
};

TEST(PagePlaces, APopularPrefixDoesNotDrawAll) {
  SimulatedOwners owners(4);
  std::map<int, int> requests;
  for (int i = 0; i < 200; ++i) ++requests[owners.submit(prompt_of(1, 8, 100, i), 100)];
  ASSERT_EQ(requests.size(), 4u);
  for (const auto& [owner, count] : requests) EXPECT_NEAR(count, 50, 5) << owner;
}

TEST(PagePlaces, WhereThereIsTimeAPrefixStaysWhereItIs) {
  SimulatedOwners owners(4);
  std::set<int> used;
  for (int i = 0; i < 50; ++i) {
    used.insert(owners.submit(prompt_of(1, 8, 100, i), 100));
    owners.compute(150);
  }
  EXPECT_LE(used.size(), 2u);
}

TEST(PagePlaces, NobodyIsBusierThanThePrefixIsWorth) {
  std::mt19937 random(7);
  SimulatedOwners owners(6);
  for (int i = 0; i < 2000; ++i) {
    const auto any = [&](uint32_t count) { return static_cast<int>(random() % count); };
    owners.submit(prompt_of(any(5), any(7), 1 + any(90), i), any(200));
    owners.compute(any(100));
  }
}

}  // namespace
}  // namespace wideep::run
