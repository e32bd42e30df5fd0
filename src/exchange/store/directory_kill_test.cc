// SPDX-License-Identifier: Apache-2.0
//
// Processes that are killed while they write, evict and take segments over. WIDEEP_STORE_KILLS: how
// many in each test (20).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/scratch_directory.h"
#include "store/directory_testing.h"

namespace wideep::store {
namespace {

using namespace directory_testing;

int num_kills() {
  const char* wanted = std::getenv("WIDEEP_STORE_KILLS");
  return wanted == nullptr ? 20 : std::atoi(wanted);
}

struct Limits {
  uint64_t max_bytes, segment_bytes, max_record;
};

// Sizes differ, so that no segment ends where another does.
Head record_of(uint32_t number, uint32_t page, const Limits& limits) {
  const uint64_t bytes = 1 + (number * 7919u + page * 104729u) % limits.max_record;
  return page_head(number, page, bytes);
}

// A process that appends the pages of its sequence and says after each that it is kept.
class Writer {
 public:
  Writer(const std::string& path, uint32_t number, const Limits& limits) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      ::close(ends[0]);
      write(path, number, limits, ends[1]);
    }
    ::close(ends[1]);
    words_ = ends[0];
  }
  ~Writer() { ::close(words_); }

  // Until it has said so of `count` records in all.
  void wait_for(uint32_t count) {
    while (kept_ < count && next()) {
    }
  }
  // How many it had said were kept.
  uint32_t kill() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    while (next()) {
    }
    return kept_;
  }

 private:
  [[noreturn]] static void write(const std::string& path, uint32_t number, const Limits& limits,
                                 int words) {
    auto directory = open_directory(path, limits.max_bytes, limits.segment_bytes);
    for (uint32_t page = 0; directory != nullptr; ++page) {
      const OfferResult result = offer(*directory, record_of(number, page, limits));
      if (result != OfferResult::kTaken) ::_exit(1);
      if (::write(words, "k", 1) != 1) ::_exit(2);
    }
    ::_exit(3);
  }
  bool next() {
    char word;
    if (::read(words_, &word, 1) != 1) return false;
    ++kept_;
    return true;
  }

  pid_t process_;
  int words_;
  uint32_t kept_ = 0;
};

void sleep_for_microseconds(uint64_t count) {
  std::this_thread::sleep_for(std::chrono::microseconds(count));
}

TEST(DirectoryKill, NothingIsLostButWhatIsBeingWritten) {
  constexpr Limits kLimits = {
      .max_bytes = uint64_t{512} << 20, .segment_bytes = uint64_t{1} << 20, .max_record = 200000};
  std::mt19937 random(60);
  auto scratch = std::make_unique<base::ScratchDirectory>();
  std::vector<Head> kept;
  uint64_t num_kept = 0, num_lost = 0;
  const int rounds = num_kills();
  for (int round = 0; round < rounds; ++round) {
    if (kept.size() > 300) {
      scratch = std::make_unique<base::ScratchDirectory>();
      kept.clear();
    }
    const auto number = static_cast<uint32_t>(round);
    Writer writer(scratch->path(), number, kLimits);
    writer.wait_for(random() % 12);
    sleep_for_microseconds(random() % 1500);  // somewhere within a record
    const uint32_t count = writer.kill();
    for (uint32_t page = 0; page < count; ++page) {
      kept.push_back(record_of(number, page, kLimits));
    }
    num_kept += count;
    auto directory = open_directory(scratch->path(), kLimits.max_bytes, kLimits.segment_bytes);
    for (const FetchResult result : fetch(*directory, kept)) {
      num_lost += result != FetchResult::kWhole;
    }
    ASSERT_EQ(num_lost, 0u) << "round " << round;
    ASSERT_EQ(directory->counts().damaged, 0u) << "round " << round;
    // The record that was being written: there, or not at all.
    const FetchResult last = fetch(*directory, record_of(number, count, kLimits));
    ASSERT_TRUE(last == FetchResult::kWhole || last == FetchResult::kMissing);
    if (last == FetchResult::kWhole) kept.push_back(record_of(number, count, kLimits));
    ASSERT_LE(disk_bytes(scratch->path()), kLimits.max_bytes);
  }
  RecordProperty("kills", rounds);
  RecordProperty("kept", std::to_string(num_kept));
  std::printf("%d kills, %lu records kept, %lu lost\n", rounds, num_kept, num_lost);
}

// With so little room that they evict all the time, each in the segments of all.
TEST(DirectoryKill, NothingIsWrongOrLeftWhereSeveralEvict) {
  constexpr Limits kLimits = {
      .max_bytes = uint64_t{4} << 20, .segment_bytes = uint64_t{256} << 10, .max_record = 30000};
  const base::ScratchDirectory scratch;
  std::mt19937 random(61);
  auto reader = open_directory(scratch.path(), kLimits.max_bytes, kLimits.segment_bytes);
  std::vector<std::unique_ptr<Writer>> writers;
  uint64_t num_whole = 0;
  const auto rounds = static_cast<uint32_t>(num_kills());
  for (uint32_t number = 0; number < rounds; ++number) {
    writers.push_back(std::make_unique<Writer>(scratch.path(), number, kLimits));
    writers.back()->wait_for(random() % 100);
    sleep_for_microseconds(random() % 1000);
    for (int i = 0; i < 30; ++i) {
      const uint32_t from = number < 3 ? 0 : number - 3;
      const Head head = record_of(from + random() % 4, random() % 100, kLimits);
      const FetchResult result = fetch(*reader, head);
      ASSERT_NE(result, FetchResult::kDamaged);
      num_whole += result == FetchResult::kWhole;
      reader->find(std::span(&head, 1));
    }
    if (writers.size() < 3) continue;
    const size_t victim = random() % writers.size();
    writers[victim]->kill();
    writers.erase(writers.begin() + static_cast<std::ptrdiff_t>(victim));
  }
  for (const auto& writer : writers) writer->kill();
  EXPECT_GT(num_whole, 0u);
  EXPECT_EQ(reader->counts().damaged, 0u);
  reader = open_directory(scratch.path(), kLimits.max_bytes, kLimits.segment_bytes);
  EXPECT_EQ(reader->counts().damaged, 0u);
  // All of the room can be used, whatever the killed ones have left: of the last records that would
  // fit, almost all are there at some time. How many swings, as a sequence gives way at its end.
  std::vector<Head> last;
  for (uint32_t page = 0; page < 1500; ++page) {
    last.push_back(record_of(9999, page, kLimits));
    ASSERT_EQ(offer(*reader, last.back()), OfferResult::kTaken);
    if (last.size() > 150) last.erase(last.begin());
    const bool was_full_twice = page > 400;
    if (was_full_twice && std::ranges::count(reader->find(last), true) >= 140) break;
  }
  EXPECT_GE(std::ranges::count(fetch(*reader, last), FetchResult::kWhole), 140);
  EXPECT_LE(disk_bytes(scratch.path()), kLimits.max_bytes);
  std::printf("%u kills, %lu records read meanwhile\n", rounds, num_whole);
}

}  // namespace
}  // namespace wideep::store
