// SPDX-License-Identifier: Apache-2.0
//
// Reads of a file of random bytes, with a disk that is slow, hangs, fails, reads less than it was
// asked for or changes bits. A failure means that a rank computes with bytes that are not an
// expert's, waits for a disk for ever, or that the kernel writes to memory that is another's.
#include "weights/record_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/content_hash.h"
#include "base/cpu_time.h"
#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::weights {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr uint64_t kBlock = DirectInput::kBlockBytes, kPiece = 4 * kBlock;
constexpr int64_t kMillisecond = 1'000'000, kSecond = 1'000 * kMillisecond;
constexpr int64_t kLong = 60 * kSecond;  // nothing here takes so long but for a bug

// Memory for `count` records of at most so many bytes; all bytes are kUnread.
class Slots {
 public:
  static constexpr std::byte kUnread{0xA5};

  Slots(size_t count, uint64_t bytes)
      : slot_bytes_(DirectInput::in_blocks(bytes)), bytes_(count * slot_bytes_) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlock, bytes_)));
    std::memset(memory_.get(), static_cast<int>(kUnread), bytes_);
  }
  std::byte* at(size_t i) const { return memory_.get() + i * slot_bytes_; }
  bool is_unread() const {
    return std::all_of(memory_.get(), memory_.get() + bytes_,
                       [](std::byte each) { return each == kUnread; });
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  uint64_t slot_bytes_, bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Reads wait at it until it is opened, as on a disk that hangs.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait_for(int reads) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= reads; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool is_open_ = false;
};

class RecordReaderTest : public ::testing::Test {
 protected:
  // Makes the file: records of these sizes, each from a block on.
  void write(const std::vector<uint64_t>& sizes) {
    std::mt19937_64 rng(1);
    for (const uint64_t bytes : sizes) {
      content_.resize(DirectInput::in_blocks(content_.size()));
      const uint64_t begin = content_.size();
      content_.resize(begin + bytes);
      std::generate(content_.begin() + static_cast<ptrdiff_t>(begin), content_.end(),
                    [&] { return static_cast<char>(rng()); });
      records_.push_back({.ticket = records_.size(),
                          .offset = begin,
                          .bytes = bytes,
                          .hash = base::content_hash(of_file(begin), bytes)});
    }
    ASSERT_TRUE(formats::write_file(path(), content_).ok());
    slots_ = std::make_shared<Slots>(sizes.size(), *std::max_element(sizes.begin(), sizes.end()));
    for (RecordOrder& each : records_) each.into = slots_->at(each.ticket);
  }
  void open(RecordReaderOptions options = {}) {
    options.piece_bytes = kPiece;
    auto reader = RecordReader::open(path(), std::move(options));
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    reader_ = std::move(*reader);
  }
  void submit(const RecordOrder& order) { reader_->submit({&order, 1}); }
  void submit_all() { reader_->submit(records_); }
  Completion next() {
    const auto end = reader_->wait(base::wall_ns() + kLong);
    EXPECT_TRUE(end.has_value());
    return end.value_or(Completion{});
  }
  // All ends until no order is open: how many of each kind.
  std::map<RecordEnd, int> all_ends() {
    std::map<RecordEnd, int> ends;
    while (const auto end = reader_->wait(base::wall_ns() + kLong)) {
      ++ends[end->end];
      if (end->end == RecordEnd::kWhole) {
        EXPECT_TRUE(is_there(end->ticket)) << end->ticket;
      }
    }
    return ends;
  }
  bool is_there(uint64_t ticket) const {
    const RecordOrder& record = records_[ticket];
    return std::memcmp(record.into, of_file(record.offset), record.bytes) == 0;
  }
  const std::byte* of_file(uint64_t at) const {
    return reinterpret_cast<const std::byte*>(content_.data()) + at;
  }
  std::string path() const { return scratch_.file("records"); }

  base::ScratchDirectory scratch_;
  std::string content_;
  std::vector<RecordOrder> records_;  // by ticket
  std::shared_ptr<Slots> slots_;
  std::unique_ptr<RecordReader> reader_;  // first to go: it writes to the slots
};

TEST_F(RecordReaderTest, RecordsOfAllSizesAreWhole) {
  write({1, kBlock - 1, kBlock, kBlock + 1, kPiece, 3 * kPiece + 5, 20 * kPiece, 77});
  open();
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 8}}));
  const RecordCounters counters = reader_->counters();
  EXPECT_EQ(counters.whole, 8u);
  EXPECT_EQ(counters.bytes, 3 * kBlock + 24 * kPiece + 1 + 5 + 77);
  EXPECT_GT(counters.busy_s, 0.0);
  EXPECT_EQ(reader_->poll(), std::nullopt);
}

TEST_F(RecordReaderTest, ItSaysHowItReads) {
  write({1});
  open({.depth = 3});
  EXPECT_THAT(reader_->description(), HasSubstr("3 threads, pieces of 16.0 KiB, "));
  EXPECT_THAT(reader_->description(),
              EndsWith(reader_->is_direct() ? "past the page cache" : "refuses O_DIRECT"));
  EXPECT_THAT(RecordReader::open(scratch_.file("none"), {}).status().message(),
              HasSubstr("none: No such file"));
}

TEST_F(RecordReaderTest, OfAThousandRecordsWithAChangedBitNoneIsWhole) {
  constexpr size_t kRecords = 1000;
  write(std::vector<uint64_t>(kRecords, 2 * kBlock + 1000));
  const int file = ::open(path().c_str(), O_WRONLY | O_CLOEXEC);
  std::mt19937_64 rng(2);
  for (const RecordOrder& each : records_) {
    const uint64_t at = each.offset + rng() % each.bytes;
    const char changed = static_cast<char>(content_[at] ^ (1 << rng() % 8));
    ASSERT_EQ(::pwrite(file, &changed, 1, static_cast<off_t>(at)), 1);
  }
  ::close(file);
  open();
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kDamaged, kRecords}}));
  EXPECT_EQ(reader_->counters().read_again, kRecords);
  const Completion end = {.offset = 8192, .end = RecordEnd::kDamaged};
  EXPECT_EQ(reader_->status_of(end).message(),
            path() +
                ": the record at byte 8192 is not what was written, read twice: the file or "
                "the disk is damaged");
}

TEST_F(RecordReaderTest, ARecordThatIsReadWronglyOnceIsReadAgain) {
  write({3 * kPiece, 2 * kPiece});
  std::atomic<bool> is_first = true;
  open({.read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
    const ssize_t count = ::pread(fd, into, bytes, offset);
    if (offset == kPiece && is_first.exchange(false)) into[100] ^= std::byte{4};
    return count;
  }});
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 2}}));
  EXPECT_EQ(reader_->counters().read_again, 1u);
  EXPECT_EQ(reader_->counters().damaged, 0u);
}

TEST_F(RecordReaderTest, InterruptedAndShortReadsGoOn) {
  write({5 * kPiece + 3, kPiece});
  std::atomic<int> calls = 0;
  open({.read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) -> ssize_t {
    if (++calls % 2 == 0) {
      errno = EINTR;
      return -1;
    }
    return ::pread(fd, into, std::min<size_t>(bytes, kBlock), offset);
  }});
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 2}}));
}

TEST_F(RecordReaderTest, AnErrorOfTheDiskEndsThatRecordAlone) {
  write({3 * kPiece, kPiece, 2 * kPiece});
  open({.read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) -> ssize_t {
    if (static_cast<uint64_t>(offset) == 3 * kPiece) {
      errno = EIO;
      return -1;
    }
    return ::pread(fd, into, bytes, offset);
  }});
  submit(records_[1]);
  const Completion end = next();
  EXPECT_EQ(end.end, RecordEnd::kFailed);
  EXPECT_EQ(end.error, EIO);
  EXPECT_EQ(reader_->status_of(end).message(),
            path() + ": the record at byte 49152 cannot be read: Input/output error");
  submit(records_[0]);
  submit(records_[2]);
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 2}}));
}

TEST_F(RecordReaderTest, AFileThatIsCutWhileItIsReadEndsRecordsAsFailed) {
  write({4 * kPiece, 4 * kPiece});
  open({.depth = 1, .read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
          if (offset == kPiece) {
            EXPECT_EQ(::truncate(path().c_str(), 2 * kPiece + 50), 0);
          }
          return ::pread(fd, into, bytes, offset);
        }});
  submit_all();
  const Completion end = next();
  EXPECT_EQ(end.end, RecordEnd::kFailed);
  EXPECT_THAT(reader_->status_of(end).message(),
              EndsWith("cannot be read: the file ends before the record does"));
  EXPECT_EQ(next().end, RecordEnd::kFailed);
}

TEST_F(RecordReaderTest, AFileThatIsRemovedIsReadAsBefore) {
  write({kPiece, 7 * kPiece});
  open();
  ASSERT_EQ(::unlink(path().c_str()), 0);
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 2}}));
}

TEST_F(RecordReaderTest, ADiskThatHangsMakesOrdersLateAndTheirMemoryIsReturned) {
  write({kPiece, kPiece});
  const auto gate = std::make_shared<Gate>();
  open({.depth = 1, .read_piece = [gate](int fd, std::byte* into, size_t bytes, off_t offset) {
          gate->pass();
          return ::pread(fd, into, bytes, offset);
        }});
  const int64_t begin_ns = base::wall_ns();
  for (RecordOrder& each : records_) {
    each.deadline_ns = begin_ns + 100 * kMillisecond;
    submit(each);
  }
  gate->wait_for(1);
  std::vector<Completion> ends(2);
  for (const Completion& end : {next(), next()}) ends[end.ticket] = end;
  EXPECT_GE(base::wall_ns() - begin_ns, 100 * kMillisecond);
  EXPECT_EQ(ends[0].end, RecordEnd::kLate);
  EXPECT_TRUE(ends[0].is_lent);
  EXPECT_EQ(ends[1].end, RecordEnd::kLate);
  EXPECT_FALSE(ends[1].is_lent);  // none of it has been begun
  EXPECT_EQ(reader_->status_of(ends[0]).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(reader_->wait(base::wall_ns() + kMillisecond), std::nullopt);
  EXPECT_TRUE(slots_->is_unread());
  gate->open();
  EXPECT_EQ(next().end, RecordEnd::kReturned);
  EXPECT_TRUE(is_there(0));

  for (RecordOrder& each : records_) each.deadline_ns = base::wall_ns() + kLong;
  submit_all();
  EXPECT_EQ(all_ends(), (std::map<RecordEnd, int>{{RecordEnd::kWhole, 2}}));
}

TEST_F(RecordReaderTest, TheDestructorWaitsForReadsInFlightAndBeginsNoOthers) {
  write(std::vector<uint64_t>(20, 3 * kPiece));
  std::atomic<int> begun = 0, ended = 0;
  open({.depth = 4, .read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
          ++begun;
          std::this_thread::sleep_for(milliseconds(20));
          const ssize_t count = ::pread(fd, into, bytes, offset);
          ++ended;
          return count;
        }});
  submit_all();
  while (begun == 0) std::this_thread::yield();
  reader_.reset();
  EXPECT_EQ(begun, ended);
  EXPECT_LT(begun, 20);
}

TEST_F(RecordReaderTest, TheDestructorLeavesADiskThatHangsAndTheMemoryWithIt) {
  write({kPiece});
  const auto gate = std::make_shared<Gate>();
  open({.depth = 2,
        .memory = slots_,
        .read_piece = [gate](int fd, std::byte* into, size_t bytes, off_t offset) {
          gate->pass();
          return ::pread(fd, into, bytes, offset);
        }});
  submit(records_[0]);
  gate->wait_for(1);
  const std::weak_ptr<Slots> slots = slots_;
  slots_.reset();
  reader_.reset();
  EXPECT_FALSE(slots.expired());
  gate->open();
  while (!slots.expired()) std::this_thread::yield();
}

// The offsets of reads, in their order, while one thread reads.
class RecordReaderOrderTest : public RecordReaderTest {
 protected:
  void SetUp() override {
    write({kPiece, 2 * kPiece, kPiece, kPiece});
    for (RecordOrder& each : records_) each.is_urgent = false;
    open({.depth = 1, .read_piece = [this](int fd, std::byte* into, size_t bytes, off_t offset) {
            offsets_.push_back(static_cast<uint64_t>(offset) / kPiece);
            gate_.pass();
            return ::pread(fd, into, bytes, offset);
          }});
    submit(records_[0]);
    gate_.wait_for(1);
  }
  void finish() {
    gate_.open();
    all_ends();
  }

  Gate gate_;
  std::vector<uint64_t> offsets_;
};

TEST_F(RecordReaderOrderTest, UrgentOrdersComeFirst) {
  submit(records_[1]);
  records_[2].is_urgent = true;
  submit(records_[2]);
  submit(records_[3]);
  reader_->make_urgent(3);
  finish();
  EXPECT_THAT(offsets_, ElementsAre(0, 3, 4, 1, 2));
  reader_.reset();
}

TEST_F(RecordReaderOrderTest, WhatHasNotBeenBegunCanBeCancelled) {
  submit(records_[1]);
  submit(records_[2]);
  EXPECT_FALSE(reader_->cancel(0));
  EXPECT_TRUE(reader_->cancel(1));
  EXPECT_FALSE(reader_->cancel(1));
  finish();
  EXPECT_FALSE(reader_->cancel(2));
  EXPECT_THAT(offsets_, ElementsAre(0, 3));
  EXPECT_EQ(reader_->counters().whole, 2u);
  reader_.reset();
}

// All at once, for some seconds of a disk's troubles: each order has one end, and what is whole is.
TEST_F(RecordReaderTest, EachOrderHasOneEndWhateverTheDiskDoes) {
  constexpr size_t kRecords = 400;
  std::mt19937_64 rng(3);
  std::vector<uint64_t> sizes(kRecords);
  for (uint64_t& each : sizes) each = 1 + rng() % (6 * kPiece);
  write(sizes);
  std::atomic<uint64_t> calls = 0;
  open({.read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) -> ssize_t {
    const uint64_t luck = base::content_hash_hex(std::to_string(++calls))[0] - '0';
    if (luck == 0) errno = EINTR;
    if (luck == 1 && calls % 7 == 0) errno = EIO;
    if (luck == 0 || (luck == 1 && calls % 7 == 0)) return -1;
    if (luck == 2) std::this_thread::sleep_for(milliseconds(3));
    const ssize_t count =
        ::pread(fd, into, luck == 3 ? std::min<size_t>(bytes, kBlock) : bytes, offset);
    if (luck == 4 && count > 0) into[calls % static_cast<uint64_t>(count)] ^= std::byte{1};
    return count;
  }});
  std::map<uint64_t, int> ends;
  size_t cancelled = 0, lent = 0;
  const auto take = [&](const Completion& end) {
    lent += end.is_lent ? 1 : 0;
    lent -= end.end == RecordEnd::kReturned ? 1 : 0;
    ends[end.ticket] += end.end == RecordEnd::kReturned ? 0 : 1;
    if (end.end == RecordEnd::kWhole) {
      EXPECT_TRUE(is_there(end.ticket));
    }
  };
  for (RecordOrder& each : records_) {
    each.is_urgent = rng() % 2 == 0;
    if (rng() % 4 == 0)
      each.deadline_ns = base::wall_ns() + static_cast<int64_t>(rng() % kSecond) / 100;
    submit(each);
    if (rng() % 8 == 0) reader_->make_urgent(rng() % kRecords);
    if (rng() % 8 == 0 && reader_->cancel(each.ticket)) ++cancelled;
    while (const auto end = reader_->poll()) take(*end);
  }
  while (const auto end = reader_->wait(base::wall_ns() + kLong)) take(*end);
  EXPECT_EQ(ends.size() + cancelled, kRecords);
  for (const auto& [ticket, count] : ends) EXPECT_EQ(count, 1) << ticket;
  EXPECT_EQ(lent, 0u);
  const RecordCounters counters = reader_->counters();
  EXPECT_GT(counters.whole, 0u);
  EXPECT_EQ(counters.whole + counters.damaged + counters.failed + counters.late, ends.size());
}

}  // namespace
}  // namespace wideep::weights
