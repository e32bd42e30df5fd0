// SPDX-License-Identifier: Apache-2.0
#include "store/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/scratch_directory.h"
#include "store/directory_testing.h"

namespace wideep::store {
namespace {

using namespace directory_testing;
using ::testing::Each;

void wait_for_poll() {
  std::this_thread::sleep_for(Directory::kPollInterval + std::chrono::milliseconds(20));
}

std::vector<Head> sequence(uint32_t number, uint32_t num_pages, uint64_t bytes) {
  std::vector<Head> heads;
  for (uint32_t page = 0; page < num_pages; ++page) heads.push_back(page_head(number, page, bytes));
  return heads;
}

int num_segments(const std::string& path) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    count += entry.path().filename().string().starts_with("segment-");
  }
  return count;
}

TEST(Directory, HasWhatWasWrittenInThisProcessAndTheNext) {
  const base::ScratchDirectory scratch;
  std::vector<Head> all;
  {
    auto directory = open_directory(scratch.path());
    // Less than a block, whole blocks, a little more, and more than is read at once.
    for (const uint64_t bytes :
         {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{70000}, (uint64_t{5} << 20) + 3}) {
      for (uint32_t page = 0; page < 3; ++page) {
        all.push_back(page_head(static_cast<uint32_t>(bytes), page, bytes));
        EXPECT_EQ(offer(*directory, all.back()), OfferResult::kTaken);
        EXPECT_EQ(offer(*directory, all.back()), OfferResult::kKnown);
      }
    }
    EXPECT_THAT(directory->find(all), Each(true));
    EXPECT_THAT(fetch(*directory, all), Each(FetchResult::kWhole));
    EXPECT_EQ(directory->counts().taken, all.size());
    EXPECT_EQ(directory->size().records, all.size());
  }
  auto directory = open_directory(scratch.path());
  EXPECT_THAT(directory->find(all), Each(true));
  EXPECT_THAT(fetch(*directory, all), Each(FetchResult::kWhole));
  std::reverse(all.begin(), all.end());
  EXPECT_THAT(fetch(*directory, all), Each(FetchResult::kWhole));
  EXPECT_EQ(directory->counts().damaged, 0u);
  EXPECT_EQ(directory->counts().fetched, 2 * all.size());
  EXPECT_EQ(fetch(*directory, page_head(77, 0, 10)), FetchResult::kMissing);
}

// Straight to where they are wanted.
TEST(Directory, ReadsIntoAlignedMemory) {
  const base::ScratchDirectory scratch;
  auto directory = open_directory(scratch.path());
  const std::vector<Head> heads = sequence(1, 20, 9000);
  for (const Head& head : heads) offer(*directory, head);
  BlockMemory memory;
  constexpr uint64_t kApart = 3 * kBlockBytes;
  std::byte* begin = memory.at_least(heads.size() * kApart);
  std::vector<FetchOrder> orders;
  for (const Head& head : heads) {
    orders.push_back({head, std::span(begin + orders.size() * kApart, head.part.bytes())});
  }
  size_t count = 0;
  ASSERT_TRUE(directory
                  ->fetch(orders,
                          [&](size_t i, FetchResult result) {
                            EXPECT_EQ(result, FetchResult::kWhole);
                            const std::vector<std::byte> wanted = written_bytes(heads[i]);
                            EXPECT_TRUE(std::ranges::equal(orders[i].into, wanted));
                            return ++count < 15;
                          })
                  .ok());
  EXPECT_EQ(count, 15u);  // no more are read
}

TEST(Directory, PutsPartsTogether) {
  const base::ScratchDirectory scratch;
  auto directory = open_directory(scratch.path());
  // 6 layers of 4 heads of 100 bytes; two pipeline stages, of two tensor-parallel ranks each.
  constexpr uint64_t kHead = 100, kLayer = 4 * kHead, kAll = 6 * kLayer;
  const auto part = [](uint64_t layer, uint64_t layers, uint64_t head, uint64_t heads) {
    return Part{.first = layer * kLayer + head * kHead,
                .length = heads * kHead,
                .stride = kLayer,
                .count = layers};
  };
  const Head whole = page_head(1, 0, Part::whole(kAll), kAll);
  for (const Part& one : {part(0, 3, 0, 2), part(0, 3, 2, 2), part(3, 3, 0, 2)}) {
    EXPECT_FALSE(directory->find(std::span(&whole, 1))[0]);
    EXPECT_EQ(offer(*directory, page_head(1, 0, one, kAll)), OfferResult::kTaken);
  }
  const Head right = page_head(1, 0, part(0, 6, 2, 2), kAll);
  EXPECT_EQ(fetch(*directory, whole), FetchResult::kMissing);
  EXPECT_EQ(fetch(*directory, right), FetchResult::kMissing);
  EXPECT_EQ(offer(*directory, page_head(1, 0, part(3, 3, 2, 2), kAll)), OfferResult::kTaken);
  EXPECT_EQ(fetch(*directory, whole), FetchResult::kWhole);
  EXPECT_EQ(fetch(*directory, right), FetchResult::kWhole);
  EXPECT_EQ(fetch(*directory, page_head(1, 0, part(2, 2, 1, 2), kAll)), FetchResult::kWhole);
  EXPECT_EQ(offer(*directory, whole), OfferResult::kKnown);
  // Of another canonical form: nothing in common.
  EXPECT_EQ(fetch(*directory, page_head(1, 0, Part::whole(kLayer), kLayer)), FetchResult::kMissing);
}

TEST(Directory, TokensDecideNotNames) {
  const base::ScratchDirectory scratch;
  auto directory = open_directory(scratch.path());
  const Head head = page_head(1, 1, 5000);
  offer(*directory, head);
  for (const auto& change : std::vector<std::function<void(Head&)>>{
           [](Head& h) { ++h.tokens[63]; }, [](Head& h) { ++h.before.bytes[0]; },
           [](Head& h) { ++h.page; }, [](Head& h) { h.kind = Kind::kState; }}) {
    Head other = head;
    change(other);
    EXPECT_EQ(fetch(*directory, other), FetchResult::kMissing);
  }
  EXPECT_EQ(fetch(*directory, head), FetchResult::kWhole);
  EXPECT_EQ(directory->counts().damaged, 0u);
}

TEST(Directory, KeepsNothingThatChangedMeanwhile) {
  const base::ScratchDirectory scratch;
  auto directory = open_directory(scratch.path());
  const Head head = page_head(1, 0, 100);
  EXPECT_EQ(directory->offer(head, written_bytes(head), 1, [] { return false; }),
            OfferResult::kRefused);
  EXPECT_FALSE(directory->find(std::span(&head, 1))[0]);
  EXPECT_EQ(directory->offer(head, written_bytes(head), 1, [] { return true; }),
            OfferResult::kTaken);
}

TEST(Directory, SeveralShareIt) {
  const base::ScratchDirectory scratch;
  auto one = open_directory(scratch.path()), two = open_directory(scratch.path());
  const std::vector<Head> of_one = sequence(1, 5, 3000), of_two = sequence(2, 5, 3000);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(offer(*one, of_one[i]), OfferResult::kTaken);
    EXPECT_EQ(offer(*two, of_two[i]), OfferResult::kTaken);
  }
  EXPECT_EQ(num_segments(scratch.path()), 2);
  wait_for_poll();
  EXPECT_THAT(one->find(of_two), Each(true));
  EXPECT_THAT(fetch(*one, of_two), Each(FetchResult::kWhole));
  EXPECT_EQ(offer(*two, of_one[0]), OfferResult::kKnown);
  // What one leaves, another goes on with.
  one.reset();
  auto three = open_directory(scratch.path());
  const std::vector<Head> of_three = sequence(3, 5, 3000);
  for (const Head& head : of_three) EXPECT_EQ(offer(*three, head), OfferResult::kTaken);
  EXPECT_EQ(num_segments(scratch.path()), 2);
  wait_for_poll();
  EXPECT_THAT(fetch(*two, of_one), Each(FetchResult::kWhole));
  two->find(of_three);
  EXPECT_THAT(fetch(*two, of_three), Each(FetchResult::kWhole));
  EXPECT_EQ(two->counts().damaged, 0u);
}

TEST(Directory, StaysWithinItsBytesAndKeepsWhatIsUsed) {
  const base::ScratchDirectory scratch;
  constexpr uint64_t kMax = uint64_t{4} << 20, kRecord = 12000;
  auto directory = open_directory(scratch.path(), kMax, uint64_t{256} << 10);
  const std::vector<Head> hot = sequence(0, 10, kRecord);
  for (const Head& head : hot) EXPECT_EQ(offer(*directory, head), OfferResult::kTaken);
  for (uint32_t number = 1; number <= 100; ++number) {
    for (const Head& head : sequence(number, 10, kRecord)) {
      EXPECT_EQ(offer(*directory, head), OfferResult::kTaken);
    }
    EXPECT_THAT(fetch(*directory, hot), Each(FetchResult::kWhole)) << number;
    EXPECT_LE(disk_bytes(scratch.path()), kMax);
    EXPECT_LE(directory->size().bytes, kMax);
  }
  EXPECT_GT(directory->counts().evicted, 500u);
  EXPECT_LT(num_segments(scratch.path()), 20);
  // Prefixes are whole: where a page is, those before it are.
  int num_kept = 0;
  for (uint32_t number = 1; number <= 100; ++number) {
    const std::vector<bool> found = directory->find(sequence(number, 10, kRecord));
    for (size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i], found[i - 1]) << number;
    for (const bool one : found) num_kept += one;
  }
  EXPECT_GT(num_kept, 100);
  // As those find it who come later.
  const uint64_t num_records = directory->size().records;
  directory.reset();
  directory = open_directory(scratch.path(), kMax, uint64_t{256} << 10);
  EXPECT_EQ(directory->size().records, num_records);
  EXPECT_EQ(directory->counts().damaged, 0u);
  EXPECT_THAT(fetch(*directory, hot), Each(FetchResult::kWhole));
}

TEST(Directory, ShrinksToFewerBytes) {
  const base::ScratchDirectory scratch;
  constexpr uint64_t kSegment = uint64_t{128} << 10;
  auto directory = open_directory(scratch.path(), uint64_t{8} << 20, kSegment);
  for (uint32_t page = 0; page < 300; ++page) offer(*directory, page_head(1, page, 12000));
  EXPECT_GT(disk_bytes(scratch.path()), uint64_t{4} << 20);
  directory = open_directory(scratch.path(), uint64_t{2} << 20, kSegment);
  EXPECT_EQ(offer(*directory, page_head(2, 0, 12000)), OfferResult::kTaken);
  EXPECT_LE(disk_bytes(scratch.path()), uint64_t{2} << 20);
  EXPECT_TRUE(directory->find(std::vector{page_head(1, 0, 12000)})[0]);  // the end of it went
}

// What saves the fewest seconds per byte goes first.
TEST(Directory, KeepsWhatIsDear) {
  const base::ScratchDirectory scratch;
  auto directory = open_directory(scratch.path(), uint64_t{4} << 20, uint64_t{256} << 10);
  const std::vector<Head> dear = sequence(0, 10, 12000);
  for (const Head& head : dear) offer(*directory, head, 100.0);
  for (uint32_t number = 1; number <= 50; ++number) {
    for (const Head& head : sequence(number, 10, 12000)) offer(*directory, head, 0.1);
  }
  EXPECT_THAT(fetch(*directory, dear), Each(FetchResult::kWhole));
  EXPECT_GT(directory->counts().evicted, 100u);
}

// By one that does not use it itself, or not any more: ranks have different requests.
TEST(Directory, KeepsWhatOthersUse) {
  const base::ScratchDirectory scratch;
  constexpr uint64_t kMax = uint64_t{2} << 20, kSegment = uint64_t{128} << 10;
  auto one = open_directory(scratch.path(), kMax, kSegment);
  const std::vector<Head> hot = sequence(0, 10, 12000);
  for (const Head& head : hot) offer(*one, head);
  auto two = open_directory(scratch.path(), kMax, kSegment);
  for (uint32_t number = 1; number < 60; ++number) {
    for (const Head& head : sequence(number, 10, 12000)) offer(*one, head);
    EXPECT_THAT(fetch(*two, hot), Each(FetchResult::kWhole)) << number;
  }
  EXPECT_GT(one->counts().evicted, 200u);
}

// A record that another process evicts is missing here, not damaged.
TEST(Directory, MissesWhatOthersHaveEvicted) {
  const base::ScratchDirectory scratch;
  constexpr uint64_t kMax = uint64_t{2} << 20, kSegment = uint64_t{128} << 10;
  auto writer = open_directory(scratch.path(), kMax, kSegment);
  const std::vector<Head> old = sequence(0, 10, 12000);
  for (const Head& head : old) offer(*writer, head);
  auto reader = open_directory(scratch.path(), kMax, kSegment);
  EXPECT_THAT(reader->find(old), Each(true));
  for (uint32_t number = 1; number < 40; ++number) {
    for (const Head& head : sequence(number, 10, 12000)) offer(*writer, head);
  }
  EXPECT_THAT(fetch(*reader, old), Each(FetchResult::kMissing));
  EXPECT_THAT(reader->find(old), Each(false));
  EXPECT_EQ(reader->counts().damaged, 0u);
}

TEST(Directory, ForgetsAlsoOnTheDisk) {
  const base::ScratchDirectory scratch;
  const Head head = page_head(0, 0, 5000);
  constexpr uint64_t kSegment = uint64_t{64} << 10;
  auto directory = open_directory(scratch.path(), uint64_t{8} << 20, kSegment);
  offer(*directory, head);
  for (const Head& other : sequence(1, 20, 5000)) offer(*directory, other);  // it is complete
  directory->forget(head.name, Kind::kPage);
  EXPECT_EQ(fetch(*directory, head), FetchResult::kMissing);
  directory = open_directory(scratch.path());
  EXPECT_FALSE(directory->find(std::span(&head, 1))[0]);
  EXPECT_EQ(directory->size().records, 20u);
}

}  // namespace
}  // namespace wideep::store
