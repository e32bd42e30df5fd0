// SPDX-License-Identifier: Apache-2.0
//
// Experts that are read from a file of random bytes. A failure means that rows are computed with
// bytes that are not those of their expert, or that a rank waits for a disk for ever.
#include "model/parts/resident_experts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "base/scratch_directory.h"
#include "model/model_forms.h"
#include "packed/packed_writer.h"

namespace wideep::model {
namespace {

using residency::ResidencyCounts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weights::DirectInput;

constexpr int kExperts = 12;
const std::vector<int> kLayers = {3, 5, 6};  // their numbers in the model
constexpr uint64_t kRecord = 8192;           // bytes in memory

class ResidentExpertsTest : public ::testing::Test {
 protected:
  ResidentExpertsTest() {
    for (const int layer : kLayers) {
      balance::Placement& placement = placement_.layers[layer];
      placement = {.num_experts = kExperts, .ep_size = 1, .slot_to_expert = {}};
      // Two slots of one expert.
      for (int slot = 0; slot <= kExperts; ++slot) {
        placement.slot_to_expert.push_back((slot * 5 + layer) % kExperts);
      }
    }
    placement_.num_slots = kExperts + 1;
    auto writer = packed::PackedWriter::open(scratch_.file("packed"), {.record_class = "c"});
    for (const int layer : kLayers) {
      for (int expert = 0; expert < kExperts; ++expert) {
        const std::vector<std::byte> bytes = bytes_of(layer, expert);
        EXPECT_TRUE(writer->add(part_of(layer, expert), bytes).ok());
      }
    }
    EXPECT_TRUE(writer->end("all").ok() && writer->finish().ok());
    file_.emplace(*packed::PackedFile::open(scratch_.file("packed"), "c"));
  }

  std::string part_of(int layer, int expert) const {
    return weights::expert_part(shape_, expert_prefix(layer, expert), 0);
  }
  std::vector<std::byte> bytes_of(int layer, int expert) const {
    std::mt19937_64 rng(static_cast<uint64_t>(layer * 100 + expert));
    std::vector<std::byte> bytes(shape_.record_bytes());
    for (std::byte& each : bytes) each = static_cast<std::byte>(rng());
    return bytes;
  }

  Status open(uint64_t num_records, DirectInput::ReadPiece read_piece = {},
              std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
    experts_.reset();
    slots_.emplace(ExpertSlots::absent(shape_, placement_, 0));
    ResidentOptions options{.memory = num_records * kRecord, .deadline = deadline};
    options.read_piece = std::move(read_piece);
    if (is_known_) options.popularity = popularity();
    auto opened = ResidentExperts::open(*file_, *slots_, options);
    if (!opened.ok()) return opened.status();
    experts_ = std::move(*opened);
    return {};
  }

  // Low numbers are popular, as iterate() chooses.
  residency::Popularity popularity() const {
    residency::Popularity popularity;
    for (const int layer : kLayers) {
      for (int expert = 0; expert < kExperts; ++expert) {
        popularity.shares[layer][expert] = 1.0 / (2 + expert);
      }
    }
    return popularity;
  }

  // Computes the slots: they must be whole, unless they are absent. Returns how many are.
  int compute(int layer, std::span<const int> slots, std::multiset<int>* computed) {
    int absent = 0;
    for (const int slot : slots) {
      computed->insert(slot);
      if (slots_->is_absent(layer, slot)) {
        ++absent;
        continue;
      }
      const int expert = slots_->experts(layer)[static_cast<size_t>(slot)];
      const std::byte* const found = slots_->expert(layer, slot).gate.data;
      const std::vector<std::byte> expected = bytes_of(layer, expert);
      EXPECT_EQ(std::memcmp(found, expected.data(), expected.size()), 0)
          << "expert " << expert << " of layer " << layer;
    }
    return absent;
  }
  // Returns how many slots were absent when they should have been computed.
  int call(int layer, const std::vector<int>& rows) {
    std::multiset<int> computed, expected;
    for (size_t slot = 0; slot < rows.size(); ++slot) {
      if (rows[slot] > 0) expected.insert(static_cast<int>(slot));
    }
    experts_->choose({.layer = layer, .iteration = iteration_, .num_tokens = 8}, rows);
    expect_some(layer);
    int absent = compute(layer, experts_->present(), &computed);
    for (;;) {
      const std::span<const int> slots = experts_->await();
      if (slots.empty()) break;
      absent += compute(layer, slots, &computed);
    }
    EXPECT_EQ(computed, expected);
    return absent;
  }
  // Of the layer that follows, or of another one: what is expected need not come.
  void expect_some(int layer) {
    if (!expects_) return;
    const auto at = static_cast<size_t>(std::ranges::find(kLayers, layer) - kLayers.begin());
    std::vector<float> weights(kExperts + 9, 0.0F);  // some are other ranks'
    for (float& each : weights) each = rng_() % 3 == 0 ? static_cast<float>(rng_() % 4) : 0.0F;
    const size_t next = at + (rng_() % 8 == 0 ? 2 : 1);
    experts_->expect(kLayers[next % kLayers.size()], weights);
  }
  // Iterations whose tokens prefer low numbers. Returns how many slots were absent.
  int iterate(int count) {
    int absent = 0;
    for (int i = 0; i < count; ++i, ++iteration_) {
      for (const int layer : kLayers) {
        std::vector<int> rows(kExperts + 1, 0);
        for (int n = 0; n < 4; ++n) {
          const auto slot =
              static_cast<size_t>(std::min(rng_() % rows.size(), rng_() % rows.size()));
          rows[slot] = static_cast<int>(1 + rng_() % 3);
        }
        absent += call(layer, rows);
      }
    }
    return absent;
  }
  ResidencyCounts totals() {
    ResidencyCounts sum;
    for (const ResidencyCounts& each : experts_->counts()) sum += each;
    return sum;
  }

  const weights::ExpertShape shape_{kernels::WeightFormat::kBf16, 32, 32};
  balance::ModelPlacement placement_;
  base::ScratchDirectory scratch_;
  std::optional<packed::PackedFile> file_;
  std::optional<ExpertSlots> slots_;
  std::unique_ptr<ResidentExperts> experts_;
  std::mt19937 rng_{7};
  int64_t iteration_ = 0;
  bool expects_ = true;
  bool is_known_ = false;  // what is popular, before the first call
};

TEST_F(ResidentExpertsTest, EveryRowIsComputedWithItsExpertInAnyMemory) {
  for (const uint64_t records : {2, 3, 5, 9, 20, 35}) {
    ASSERT_TRUE(open(records).ok());
    EXPECT_EQ(iterate(100), 0);
    const ResidencyCounts sum = totals();
    EXPECT_GT(sum.chosen, 500);
    EXPECT_LT(sum.hits, sum.chosen);
    EXPECT_LE(sum.num_resident, static_cast<int>(records));
    EXPECT_EQ(sum.lost, 0);
  }
}

// What is read ahead may be what fills memory, and leave again before it is used.
TEST_F(ResidentExpertsTest, GuessesAndFillsMeet) {
  is_known_ = true;
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(open(static_cast<uint64_t>(8 + i % 20)).ok());
    EXPECT_EQ(iterate(8), 0);
    EXPECT_EQ(totals().lost, 0);
  }
}

TEST_F(ResidentExpertsTest, WhatIsExpectedIsThereOrMakesRoom) {
  ASSERT_TRUE(open(16).ok());
  expects_ = false;
  EXPECT_EQ(iterate(100), 0);
  EXPECT_EQ(totals().expected + totals().read_in_vain, 0);
  std::vector<int> rows(kExperts + 1, 1);
  const std::vector<float> weights(kExperts, 1.0F);
  for (int i = 0; i < 20; ++i, ++iteration_) {
    for (const int layer : {3, 5}) {
      experts_->expect(layer, weights);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(call(layer, rows), 0);
    }
    experts_->expect(6, weights);  // which is not called
  }
  // Half of the four records that experts pass through.
  EXPECT_GT(totals().expected, 20);
  EXPECT_LE(totals().expected, 2 * 2 * 20);
  EXPECT_GT(totals().read_in_vain, 20);
  EXPECT_EQ(iterate(20), 0);
}

TEST_F(ResidentExpertsTest, MoreMemoryHitsMore) {
  expects_ = false;
  double before = 0.0;
  for (const uint64_t records : {9, 18, 30}) {
    ASSERT_TRUE(open(records).ok());
    iterate(300);
    const double rate = static_cast<double>(totals().hits) / static_cast<double>(totals().chosen);
    EXPECT_GT(rate, before + 0.05);
    before = rate;
  }
}

TEST_F(ResidentExpertsTest, WithMemoryForAllEachIsReadOnce) {
  ASSERT_TRUE(open(100).ok());
  iterate(400);
  EXPECT_EQ(experts_->read().whole, kLayers.size() * kExperts);
  EXPECT_EQ(totals().chosen - totals().hits, static_cast<int64_t>(kLayers.size()) * kExperts);
}

TEST_F(ResidentExpertsTest, ChunksOfOneLayerMayReadAgain) {
  ASSERT_TRUE(open(4).ok());
  for (int i = 0; i < 50; ++i, ++iteration_) {
    for (const int layer : kLayers) {
      EXPECT_EQ(call(layer, std::vector<int>(kExperts + 1, 1)), 0);
      EXPECT_EQ(call(layer, std::vector<int>(kExperts + 1, 2)), 0);
    }
  }
}

TEST_F(ResidentExpertsTest, WhatIsDamagedIsAbsentAndNothingElse) {
  const packed::Part part = *file_->find(part_of(5, 4));
  const int fd = ::open(file_->records_path().c_str(), O_WRONLY | O_CLOEXEC);
  const std::byte wrong{0x5A};
  ASSERT_EQ(::pwrite(fd, &wrong, 1, static_cast<off_t>(part.offset + 77)), 1);
  ::close(fd);
  ASSERT_TRUE(open(6).ok());
  std::vector<int> rows(kExperts + 1, 1);
  for (int i = 0; i < 3; ++i, ++iteration_) {
    EXPECT_EQ(call(3, rows), 0);
    EXPECT_EQ(call(5, rows), 1);
  }
  EXPECT_EQ(totals().lost, 3);
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    if (slots_->experts(5)[slot] == 4) rows[slot] = 0;
  }
  EXPECT_EQ(call(5, rows), 0);
}

// In one read of four; the second try may be right.
TEST_F(ResidentExpertsTest, NoFlippedBitIsEverUsed) {
  std::atomic<uint64_t> reads = 0, flipped = 0;
  const auto read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
    const ssize_t count = ::pread(fd, into, bytes, offset);
    std::mt19937_64 rng(reads++);
    if (count > 0 && rng() % 4 == 0) {
      into[rng() % std::min<uint64_t>(static_cast<uint64_t>(count), 6144)] ^= std::byte{1};
      ++flipped;
    }
    return count;
  };
  ASSERT_TRUE(open(5, read_piece).ok());
  int absent = 0;
  while (flipped < 1000) absent += iterate(10);
  // Some were read in the background, for nobody.
  EXPECT_LE(totals().lost, static_cast<int64_t>(experts_->read().damaged));
  EXPECT_GE(absent, totals().lost);
  EXPECT_GT(absent, 10);
  EXPECT_LT(absent, 500);
}

TEST_F(ResidentExpertsTest, ADiskThatHangsIsNotWaitedForAndComesBack) {
  std::atomic<bool> hangs = false;
  const auto read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ::pread(fd, into, bytes, offset);
  };
  ASSERT_TRUE(open(5, read_piece, std::chrono::seconds(1)).ok());
  EXPECT_EQ(iterate(5), 0);
  hangs = true;
  const std::vector<int> all(kExperts + 1, 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GT(call(5, all), 6);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  // The rest of the iteration does not wait as long again, and never for many layers.
  const auto second = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    EXPECT_GT(call(i % 2 == 0 ? 6 : 3, all), 6);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - second, std::chrono::seconds(20 / 4));
  ++iteration_;
  EXPECT_GT(call(6, all), 6);
  hangs = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ++iteration_;
  EXPECT_EQ(call(5, all), 0);
  EXPECT_EQ(iterate(50), 0);
}

// Most reads take a millisecond, some thirty: every row is computed, only later.
TEST_F(ResidentExpertsTest, ASlowDiskOnlyTakesLonger) {
  std::atomic<uint64_t> reads = 0;
  const auto read_piece = [&](int fd, std::byte* into, size_t bytes, off_t offset) {
    std::this_thread::sleep_for(std::chrono::milliseconds(reads++ % 16 == 0 ? 30 : 1));
    return ::pread(fd, into, bytes, offset);
  };
  for (const uint64_t records : {5, 20}) {
    ASSERT_TRUE(open(records, read_piece).ok());
    EXPECT_EQ(iterate(30), 0);
    EXPECT_EQ(totals().lost, 0);
    EXPECT_GT(totals().waited_ns, 30'000'000);
  }
}

TEST_F(ResidentExpertsTest, SaysWhatItNeeds) {
  EXPECT_THAT(open(1).message(),
              HasSubstr("expected at least 16.0 KiB for 2 of the 36 experts of a rank, found 8.0"));
  const auto writer = packed::PackedWriter::open(scratch_.file("other"), {.record_class = "c"});
  ASSERT_TRUE(writer.ok());
  auto empty = packed::PackedWriter::open(scratch_.file("empty"), {.record_class = "c"});
  ASSERT_TRUE(empty->end("none").ok() && empty->finish().ok());
  file_.emplace(*packed::PackedFile::open(scratch_.file("empty"), "c"));
  EXPECT_THAT(open(4).message(), HasSubstr("has no part 'model.layers.3.mlp.experts.3"));
}

}  // namespace
}  // namespace wideep::model
