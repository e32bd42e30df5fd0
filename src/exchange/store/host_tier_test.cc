// SPDX-License-Identifier: Apache-2.0
#include "store/host_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "base/sanitized.h"
#include "store/records_testing.h"

namespace wideep::store {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kBlock = HostIndex::kBlockBytes;

struct Tier {
  explicit Tier(uint64_t blocks, int objects = 1)
      : memory(HostTier::create_memory(blocks * kBlock).value()) {
    for (int i = 0; i < objects; ++i) places.push_back(HostTier::open(memory).value());
  }
  HostTier& operator*() { return *places.front(); }
  HostTier* operator->() { return places.front().get(); }

  base::SharedBytes memory;
  std::vector<std::unique_ptr<HostTier>> places;
};

// Its bytes are compared where it is whole.
FetchResult fetched(HostTier& tier, const Head& head) {
  std::vector<std::byte> into(head.part.bytes());
  std::optional<FetchResult> result;
  const FetchOrder order{.head = head, .into = into};
  EXPECT_TRUE(tier.fetch({&order, 1},
                         [&](size_t, FetchResult found) {
                           result = found;
                           return true;
                         })
                  .ok());
  if (result == FetchResult::kWhole) {
    EXPECT_EQ(into, payload_of(head));
  }
  return result.value_or(FetchResult::kMissing);
}

OfferResult offered(HostTier& tier, const Head& head, double seconds = 0.0) {
  return tier.offer(head, payload_of(head), seconds, kIntact);
}

bool has(HostTier& tier, const Head& head) { return tier.find({&head, 1})[0]; }

void expect_sound(HostTier& tier) {
  const HostIndex::Lock lock(tier.index());
  ASSERT_TRUE(lock.status().ok());
  EXPECT_EQ(tier.index().disagreement(), "");
}

TEST(HostTier, KeepsWhatItIsGiven) {
  Tier tier(16, 2);
  const auto pages = sequence_of(1, 3, 100'000);
  for (const Head& page : pages) {
    EXPECT_FALSE(has(*tier, page));
    EXPECT_EQ(fetched(*tier, page), FetchResult::kMissing);
    EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
    EXPECT_EQ(offered(*tier.places[1], page), OfferResult::kKnown);
  }
  EXPECT_EQ(tier.places[1]->find(pages), std::vector<bool>(3, true));
  for (const Head& page : pages) EXPECT_EQ(fetched(*tier.places[1], page), FetchResult::kWhole);
  Head state = pages[2];
  state.kind = Kind::kState;
  EXPECT_FALSE(has(*tier, state));
  tier->forget(pages[2].name, Kind::kPage);
  EXPECT_EQ(tier.places[1]->find(pages), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(tier->counts().taken, 3u);
  EXPECT_EQ(tier->counts().taken_bytes, 300'000u);
  EXPECT_EQ(tier.places[1]->counts().fetched_bytes, 300'000u);
  EXPECT_EQ(tier->size().records, 2u);
  EXPECT_EQ(tier->size().bytes, 4 * kBlock);
  EXPECT_EQ(tier->size().max_bytes, 16 * kBlock);
  expect_sound(*tier);
}

// In the order in which they were asked for, until the caller has enough.
TEST(HostTier, FetchEndsWhereTheCallerSaysSo) {
  Tier tier(16);
  const auto pages = sequence_of(1, 5, 1000);
  std::vector<FetchOrder> orders;
  std::vector<std::vector<std::byte>> bytes(5, std::vector<std::byte>(1000));
  for (size_t i = 0; i < 5; ++i) {
    if (i != 1) {
      EXPECT_EQ(offered(*tier, pages[i]), OfferResult::kTaken);
    }
    orders.push_back({.head = pages[i], .into = bytes[i]});
  }
  std::vector<std::pair<size_t, FetchResult>> seen;
  EXPECT_TRUE(tier->fetch(orders,
                          [&](size_t index, FetchResult result) {
                            seen.emplace_back(index, result);
                            return index < 2;
                          })
                  .ok());
  EXPECT_EQ(seen,
            (std::vector<std::pair<size_t, FetchResult>>{
                {0, FetchResult::kWhole}, {1, FetchResult::kMissing}, {2, FetchResult::kWhole}}));
}

// The hash finds, tokens decide.
TEST(HostTier, AnothersTokensAreNotThisRecord) {
  Tier tier(16);
  const Head page = sequence_of(1, 1, 1000)[0];
  ASSERT_EQ(offered(*tier, page), OfferResult::kTaken);
  Head other = page;
  other.tokens[63] += 1;
  EXPECT_FALSE(has(*tier, other));
  EXPECT_EQ(fetched(*tier, other), FetchResult::kMissing);
  EXPECT_EQ(offered(*tier, other), OfferResult::kRefused);
  other = page;
  other.canonical_bytes += 1;
  EXPECT_EQ(fetched(*tier, other), FetchResult::kMissing);
  EXPECT_EQ(fetched(*tier, page), FetchResult::kWhole);
}

TEST(HostTier, WhatHasChangedMeanwhileIsNotKept) {
  Tier tier(16);
  const Head page = sequence_of(1, 1, 100'000)[0];
  EXPECT_EQ(tier->offer(page, payload_of(page), 1.0, [] { return false; }), OfferResult::kRefused);
  EXPECT_FALSE(has(*tier, page));
  EXPECT_EQ(tier->size().bytes, 0u);
  expect_sound(*tier);
  EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
}

// While one writes a record, nobody else writes it, and nobody reads it.
TEST(HostTier, AHalfWrittenRecordIsNotThere) {
  Tier tier(16, 2);
  const Head page = sequence_of(1, 1, 100'000)[0];
  const auto meanwhile = [&] {
    EXPECT_FALSE(has(*tier.places[1], page));
    EXPECT_EQ(fetched(*tier.places[1], page), FetchResult::kMissing);
    EXPECT_EQ(offered(*tier.places[1], page), OfferResult::kKnown);
    tier.places[1]->forget(page.name, page.kind);
    return true;
  };
  EXPECT_EQ(tier->offer(page, payload_of(page), 1.0, meanwhile), OfferResult::kTaken);
  EXPECT_EQ(fetched(*tier.places[1], page), FetchResult::kWhole);
}

// Layers × heads, divided between ranks in one way, wanted in another.
TEST(HostTier, PartsArePutTogether) {
  constexpr uint64_t kLayers = 6, kHeads = 4, kHeadBytes = 5000;
  const auto part_of = [&](uint64_t layer, uint64_t layers, uint64_t head, uint64_t heads) {
    return Part{.first = (layer * kHeads + head) * kHeadBytes,
                .length = heads * kHeadBytes,
                .stride = kHeads * kHeadBytes,
                .count = layers};
  };
  Tier tier(64);
  Head page = sequence_of(1, 1, kLayers * kHeads * kHeadBytes)[0];
  std::vector<Part> wanted{Part::whole(page.canonical_bytes)};
  for (uint64_t i = 0; i < 3; ++i) wanted.push_back(part_of(2 * i, 2, 0, 4));
  for (uint64_t i = 0; i < 4; ++i) wanted.push_back(part_of(0, 6, i, 1));
  const auto count_of_wanted = [&] {
    int count = 0;
    for (const Part& part : wanted) {
      page.part = part;
      const bool is_found = has(*tier, page);
      EXPECT_EQ(fetched(*tier, page) == FetchResult::kWhole, is_found);
      if (is_found) ++count;
    }
    return count;
  };
  page.part = part_of(0, 6, 0, 2);
  EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
  EXPECT_EQ(count_of_wanted(), 2);
  page.part = part_of(0, 3, 2, 2);
  EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
  EXPECT_EQ(count_of_wanted(), 3);
  page.part = part_of(3, 3, 2, 2);
  EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
  EXPECT_EQ(count_of_wanted(), 8);
  for (const Part& part : wanted) {
    page.part = part;
    EXPECT_EQ(offered(*tier, page), OfferResult::kKnown);
  }
  // Without one of them the others are of no use.
  tier->forget(page.name, page.kind);
  EXPECT_EQ(tier->size().bytes, 0u);
}

TEST(HostTier, ADamagedRecordIsToldAndGone) {
  for (const uint64_t at : {uint64_t{0}, kBlock - 1, kBlock, 2 * kBlock + 17}) {
    Tier tier(16);
    const auto pages = sequence_of(1, 2, 3 * kBlock);
    ASSERT_EQ(offered(*tier, pages[0]), OfferResult::kTaken);
    ASSERT_EQ(offered(*tier, pages[1]), OfferResult::kTaken);
    // Found by its bytes, as the test does not know the block.
    const auto whole = payload_of(pages[0]);
    const auto* pattern = whole.data() + at / kBlock * kBlock;
    const std::span<std::byte> all(tier.memory.data(), tier.memory.size());
    const auto found = std::ranges::search(all, std::span(pattern, 64));
    ASSERT_FALSE(found.empty());
    found.begin()[static_cast<ptrdiff_t>(at % kBlock)] ^= std::byte{4};
    EXPECT_EQ(fetched(*tier, pages[0]), FetchResult::kDamaged);
    EXPECT_EQ(tier->counts().damaged, 1u);
    EXPECT_EQ(fetched(*tier, pages[0]), FetchResult::kMissing);
    EXPECT_EQ(fetched(*tier, pages[1]), FetchResult::kWhole);
    EXPECT_EQ(offered(*tier, pages[0]), OfferResult::kTaken);
    expect_sound(*tier);
  }
}

TEST(HostTier, WithoutSecondsTheOldestUseGoesFirst) {
  Tier tier(4);
  std::vector<Head> pages;
  for (int i = 0; i < 5; ++i) pages.push_back(sequence_of(i, 1, kBlock)[0]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(offered(*tier, pages[i]), OfferResult::kTaken);
  EXPECT_EQ(fetched(*tier, pages[0]), FetchResult::kWhole);
  EXPECT_EQ(offered(*tier, pages[1]), OfferResult::kKnown);
  EXPECT_EQ(offered(*tier, pages[4]), OfferResult::kTaken);
  EXPECT_EQ(tier->find(pages), (std::vector<bool>{true, true, false, true, true}));
  EXPECT_EQ(tier->counts().evicted, 1u);
}

// A sequence loses its end, not its beginning, however old that is.
TEST(HostTier, APageThatIsContinuedStays) {
  Tier tier(6);
  const auto pages = sequence_of(1, 6, kBlock);
  for (const Head& page : pages) EXPECT_EQ(offered(*tier, page), OfferResult::kTaken);
  // Nor does its own end give way to what continues it.
  const auto longer = sequence_of(1, 7, kBlock);
  EXPECT_EQ(offered(*tier, longer[6]), OfferResult::kRefused);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(offered(*tier, sequence_of(2, 3, kBlock)[i]), OfferResult::kTaken);
  }
  EXPECT_EQ(tier->find(pages), (std::vector<bool>{true, true, true, false, false, false}));
  // Behind a gap nothing gives way.
  EXPECT_EQ(offered(*tier, pages[5]), OfferResult::kRefused);
  expect_sound(*tier);
}

// A state needs the page at whose end it is.
TEST(HostTier, APageStaysForItsState) {
  Tier tier(3);
  const auto pages = sequence_of(1, 1, kBlock);
  Head state = pages[0];
  state.kind = Kind::kState;
  ASSERT_EQ(offered(*tier, pages[0]), OfferResult::kTaken);
  ASSERT_EQ(offered(*tier, state), OfferResult::kTaken);
  ASSERT_EQ(offered(*tier, sequence_of(2, 1, kBlock)[0]), OfferResult::kTaken);
  ASSERT_EQ(offered(*tier, sequence_of(3, 1, kBlock)[0]), OfferResult::kTaken);
  EXPECT_TRUE(has(*tier, pages[0]));
  EXPECT_FALSE(has(*tier, state));
  expect_sound(*tier);
}

TEST(HostTier, WhatSavesMoreStaysAndYetAges) {
  Tier tier(2);
  const Head dear = sequence_of(1, 1, kBlock)[0];
  ASSERT_EQ(offered(*tier, dear, 5.0), OfferResult::kTaken);
  int taken = 0;
  for (int i = 2; has(*tier, dear); ++i) {
    ASSERT_LT(i, 100);
    if (offered(*tier, sequence_of(i, 1, 2 * kBlock)[0], 1.0) == OfferResult::kTaken) ++taken;
    if (i < 5) {
      EXPECT_EQ(taken, 0);
    }
  }
  EXPECT_EQ(taken, 1);
}

TEST(HostTier, RefusesWhatDoesNotFit) {
  Tier tier(2);
  EXPECT_EQ(offered(*tier, sequence_of(1, 1, 2 * kBlock + 1)[0], 9.0), OfferResult::kRefused);
  EXPECT_EQ(offered(*tier, sequence_of(1, 1, 0)[0], 9.0), OfferResult::kRefused);
  EXPECT_EQ(offered(*tier, sequence_of(1, 1, 2 * kBlock)[0]), OfferResult::kTaken);
  EXPECT_THAT(HostTier::create_memory(kBlock - 1).status().message(),
              HasSubstr("at least 65536 bytes and less than 256 TiB, found 65535"));
  const auto other = base::SharedBytes::create("test", 1 << 20).value();
  EXPECT_THAT(HostTier::open(other).status().message(), HasSubstr("the memory is not one"));
}

// Whose pages others wait for takes every page of a prompt, whatever the others are worth.
TEST(HostTier, WhereOthersWaitNothingIsRefusedForItsWorth) {
  Tier tier(4);
  tier->index().take_all();
  const auto dear = sequence_of(1, 4, kBlock), cheap = sequence_of(2, 5, kBlock);
  for (const Head& page : dear) ASSERT_EQ(offered(*tier, page, 5.0), OfferResult::kTaken);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(offered(*tier, cheap[i], 1.0), OfferResult::kTaken) << i;
  }
  EXPECT_EQ(offered(*tier, cheap[4], 1.0), OfferResult::kRefused);  // its own end stays
  EXPECT_EQ(tier->find(cheap), (std::vector<bool>{true, true, true, true, false}));
  expect_sound(*tier);
}

// The rule of what goes, without heap, chains or index.
class PlainTier {
 public:
  explicit PlainTier(uint64_t blocks) : free_(blocks) {}

  OfferResult offer(const Head& head, double seconds) {
    if (const auto found = records_.find(head.name); found != records_.end()) {
      use(found->second, seconds);
      return OfferResult::kKnown;
    }
    const uint64_t blocks = (head.part.bytes() + kBlock - 1) / kBlock;
    const double bytes = static_cast<double>(blocks) * static_cast<double>(kBlock);
    const double priority = clock_ + seconds / bytes;
    while (free_ < blocks) {
      const auto victim = first_to_go(head);
      if (!victim || (head.page > 0 && !records_.contains(head.before)))
        return OfferResult::kRefused;
      const Record& least = records_.at(*victim);
      clock_ = std::max(clock_, std::min(priority, least.priority));
      if (least.priority > priority) return OfferResult::kRefused;
      free_ += least.blocks;
      records_.erase(*victim);
    }
    free_ -= blocks;
    Record& record = records_[head.name];
    record = {.head = head, .blocks = blocks, .hits = 1};
    use(record, seconds);
    return OfferResult::kTaken;
  }
  bool fetch(const Name& name) {
    const auto found = records_.find(name);
    if (found == records_.end()) return false;
    found->second.hits = std::min(found->second.hits + 1, 16);
    use(found->second, 0.0);
    return true;
  }
  void forget(const Name& name) {
    const auto found = records_.find(name);
    if (found == records_.end()) return;
    free_ += found->second.blocks;
    records_.erase(found);
  }
  bool has(const Name& name) const { return records_.contains(name); }
  uint64_t size() const { return records_.size(); }
  uint64_t free() const { return free_; }

 private:
  struct Record {
    Head head;
    uint64_t blocks = 0;
    int hits = 0;
    double seconds = 0.0, priority = 0.0;
    uint64_t last_use = 0;
  };

  void use(Record& record, double seconds) {
    if (seconds > 0.0) record.seconds = seconds;
    record.last_use = ++uses_;
    record.priority =
        clock_ + record.hits * record.seconds /
                     (static_cast<double>(record.blocks) * static_cast<double>(kBlock));
  }
  std::optional<Name> first_to_go(const Head& head) const {
    std::optional<Name> first;
    for (const auto& [name, record] : records_) {
      const bool is_continued = std::ranges::any_of(
          records_, [&](const auto& each) { return each.second.head.before == name; });
      if (is_continued || name == head.before) continue;
      const auto rank = [&](const Record& each) { return std::pair(each.priority, each.last_use); };
      if (!first || rank(record) < rank(records_.at(*first))) first = name;
    }
    return first;
  }

  std::map<Name, Record> records_;
  uint64_t free_ = 0, uses_ = 0;
  double clock_ = 0.0;
};

TEST(HostTier, AgreesWithAPlainMap) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const uint64_t blocks = 5 + random() % 40;
    Tier tier(blocks, 3);
    PlainTier plain(blocks);
    std::vector<std::vector<Head>> sequences;
    for (int i = 0; i < 8; ++i) {
      sequences.push_back(sequence_of(i, 1 + random() % 6, 1 + random() % (3 * kBlock)));
    }
    const bool knows_seconds = seed % 3 != 0;
    for (int step = 0; step < 400; ++step) {
      const auto& sequence = sequences[random() % sequences.size()];
      const Head& head = sequence[random() % sequence.size()];
      HostTier& place = *tier.places[random() % 3];
      const uint32_t what = random() % 20;
      if (what == 0) {
        place.forget(head.name, head.kind);
        plain.forget(head.name);
      } else if (what < 8) {
        ASSERT_EQ(fetched(place, head) == FetchResult::kWhole, plain.fetch(head.name));
      } else {
        const double seconds = knows_seconds ? 0.001 * static_cast<double>(1 + random() % 50) : 0.0;
        ASSERT_EQ(offered(place, head, seconds), plain.offer(head, seconds)) << seed << " " << step;
      }
      expect_sound(place);
      ASSERT_EQ(place.size().records, plain.size());
      ASSERT_EQ(place.size().bytes, (blocks - plain.free()) * kBlock);
      for (const auto& each : sequences) {
        for (const Head& page : each) ASSERT_EQ(has(place, page), plain.has(page.name));
      }
    }
  }
}

// What others overwrite while it is read is not taken for whole.
TEST(HostTier, ThreadsReadWhatOthersEvict) {
  Tier tier(24, 4);
  const int rounds = base::kSanitized ? 100 : 1500;
  std::atomic<int> whole = 0, missing = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      HostTier& place = *tier.places[static_cast<size_t>(i)];
      std::mt19937 random(static_cast<uint32_t>(i));
      for (int round = 0; round < rounds; ++round) {
        const int32_t which = static_cast<int32_t>(random() % 6);
        const Head head = sequence_of(which, 3, 60'000 + 30'000 * which)[random() % 3];
        const FetchResult result = fetched(place, head);
        EXPECT_NE(result, FetchResult::kDamaged);
        result == FetchResult::kWhole ? ++whole : ++missing;
        if (offered(place, head) == OfferResult::kTaken) ++taken;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_GT(whole.load(), 0);
  EXPECT_GT(missing.load(), 0);
  EXPECT_GT(taken.load(), 24);
  expect_sound(*tier);
}

}  // namespace
}  // namespace wideep::store
