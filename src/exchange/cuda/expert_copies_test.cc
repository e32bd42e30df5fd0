// SPDX-License-Identifier: Apache-2.0
//
// Copies of experts on emulated devices against the CPU's mover, and their protocol; and seeded
// faults in the kernels, each of which has to be found.
//
//   WIDEEP_CUDA_ROUNDS=100000 WIDEEP_CUDA_SEED=7 build/tests/cuda_emulated_test
#include "cuda/expert_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/content_hash.h"
#include "base/sanitized.h"
#include "cuda/emulated/emulated_devices.h"
#include "cuda/emulated/seeded_faults_testing.h"
#include "cuda/expert_copies_testing.h"

namespace wideep::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

MachineOptions machine(int num_devices, uint64_t seed) {
  return {.num_devices = num_devices,
          .max_blocks = 3,
          .max_threads = 96,
          .memory_bytes = size_t{8} << 20,
          .seed = seed,
          .overlaps_launches = seed % 3 == 1};
}

std::string play_emulated(const CopyCase& c, uint64_t seed, const Mutation& mutation = {},
                          std::set<Site>* sites = nullptr) {
  EmulatedDevices devices(machine(1, seed));
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  devices.set_dependent_launches(seed % 2 == 1);
  const std::string message = play_copies(devices, 0, c).message();
  if (sites != nullptr)
    sites->insert(devices.machine().sites().begin(), devices.machine().sites().end());
  return message;
}

TEST(ExpertCopiesTest, BytesAndHashesAreThoseOfTheCpusMover) {
  std::mt19937_64 random(from_environment("WIDEEP_CUDA_SEED", 1));
  const uint64_t rounds = from_environment("WIDEEP_CUDA_ROUNDS", base::kSanitized ? 10 : 80);
  for (uint64_t round = 0; round < rounds; ++round) {
    const CopyCase c = random_copies(random, 20'000);
    ASSERT_EQ(play_emulated(c, random()), "") << "round " << round;
  }
}

// ---- the protocol between two ranks ----

// On emulated devices.
class EmulatedTwoRanks {
 public:
  explicit EmulatedTwoRanks(uint64_t seed, const Mutation& mutation = {})
      : devices_(machine(2, seed)), ranks_(devices_, 0, 1) {
    devices_.machine().set_mutation(mutation);
    devices_.set_dependent_launches(seed % 2 == 0);
  }
  std::string all() { return ranks_.all().message(); }
  std::string fetch_only() { return ranks_.fetch_only().message(); }
  void record_sites(std::set<Site>* sites) {
    devices_.machine().record_sites(true);
    EXPECT_EQ(all(), "");
    sites->insert(devices_.machine().sites().begin(), devices_.machine().sites().end());
  }

 private:
  EmulatedDevices devices_;
  TwoRanks ranks_;
};

TEST(ExpertCopiesTest, ASourceIsReadAfterItsOfferAndUsedAgainWhenItIsTaken) {
  for (uint64_t seed = 1; seed <= 30; ++seed) EXPECT_EQ(EmulatedTwoRanks(seed).all(), "");
}

TEST(ExpertCopiesTest, ASourceThatIsNotOfferedIsNamed) {
  EXPECT_THAT(EmulatedTwoRanks(1).fetch_only(),
              AllOf(HasSubstr("rank 0, layer 4: copying expert 9 from rank 1"),
                    HasSubstr("not offered within the deadline")));
}

TEST(ExpertCopiesTest, SaysWhatWasSpoilt) {
  const RecordCopy copy{.expected_hash = 1, .source = 2, .layer = 3, .expert = 4};
  EXPECT_THAT(copy_status(5, copy, {CopyResult::kSpoilt, 0xabc}).message(),
              AllOf(HasSubstr("rank 5, layer 3: copying expert 4 from rank 2"),
                    HasSubstr("hash 0000000000000abc, expected 0000000000000001")));
}

TEST(ExpertCopiesTest, RefusesWhatCannotBeCopied) {
  EmulatedDevices devices(machine(1, 1));
  std::byte* memory = *devices.allocate(0, 512, true);
  auto mover = ExpertCopies::create(devices, 0, {.max_copies = 1, .piece_bytes = 1024});
  ASSERT_TRUE(mover.ok());
  const auto message = [&](const RecordCopy& copy) {
    return mover->begin(std::span(&copy, 1)).message();
  };
  EXPECT_THAT(message({.from = memory, .to = memory + 256, .num_bytes = 240, .expert = 3}),
              AllOf(HasSubstr("expert 3"), HasSubstr("240 bytes, expected at least 241")));
  EXPECT_THAT(message({.from = memory, .to = memory + 248, .num_bytes = 256}),
              HasSubstr("not aligned"));
  EXPECT_THAT(message({.to = memory, .num_bytes = 256}), HasSubstr("no memory"));
  const std::vector<RecordCopy> two(2);
  EXPECT_THAT(mover->begin(two).message(), HasSubstr("2 at a time, expected at most 1"));
  EXPECT_THAT(ExpertCopies::create(devices, 0, {.piece_bytes = 1000}).status().message(),
              HasSubstr("bytes of a piece 1000, expected a multiple of 1024"));
}

// ---- seeded faults ----

TEST(ExpertCopiesTest, EveryFaultInTheKernelsIsFound) {
  std::mt19937_64 random(3);
  std::vector<CopyCase> cases;
  for (int i = 0; i < 16; ++i) cases.push_back(random_copies(random, 9'000));
  std::set<Site> sites;
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(play_emulated(cases[i], i + 1, {}, &sites), "");
  }
  EmulatedTwoRanks(1).record_sites(&sites);
  const std::string not_offered = EmulatedTwoRanks(1).fetch_only();
  EXPECT_EQ(missed_faults(sites,
                          [&](const Mutation& mutation) -> std::string {
                            for (size_t i = 0; i < cases.size(); ++i) {
                              const std::string found = play_emulated(cases[i], i + 1, mutation);
                              if (!found.empty()) return found;
                            }
                            for (uint64_t seed = 1; seed <= 6; ++seed) {
                              const std::string found = EmulatedTwoRanks(seed, mutation).all();
                              if (!found.empty()) return found;
                            }
                            const std::string found = EmulatedTwoRanks(1, mutation).fetch_only();
                            return found == not_offered ? "" : "another message: " + found;
                          }),
            "");
}

}  // namespace
}  // namespace wideep::cuda
