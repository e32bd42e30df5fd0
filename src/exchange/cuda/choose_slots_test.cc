// SPDX-License-Identifier: Apache-2.0
//
// The slots that the kernel chooses are those of ep::SlotChooser, call after call.
#include "cuda/choose_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <set>
#include <vector>

#include "cuda/choose_slots_testing.h"
#include "cuda/counted_replicas.h"
#include "cuda/emulated/emulated_devices.h"
#include "cuda/emulated/seeded_faults_testing.h"

namespace wideep::cuda {
namespace {

std::string play_emulated(uint64_t seed, const Mutation& mutation, std::set<Site>* sites) {
  const ChoiceCase c = random_choice(seed);
  EmulatedDevices devices({.num_devices = c.shape.ep_size, .max_threads = 96, .seed = seed});
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  const std::string message = play_choice(devices, c).message();
  if (sites != nullptr) {
    sites->insert(devices.machine().sites().begin(), devices.machine().sites().end());
  }
  return message;
}

// One expert with these parts and credits, of which the tokens of one call are divided.
struct Division {
  std::vector<int64_t> parts, credit;
  int num_tokens = 0;
};

// Credits between −1 and 1 with the sum 0, and parts of which many are nothing: so the whole tokens
// of some replicas can exceed the total, which is rare in longer runs.
Division random_division(uint64_t seed) {
  std::mt19937_64 random(seed);
  Division d;
  const auto replicas = static_cast<size_t>(2 + random() % 5);
  constexpr int64_t kHalf = ep::kWholeToken / 2;
  int64_t rest = ep::kWholeToken;
  for (size_t i = 0; i < replicas; ++i) {
    const auto part = static_cast<int64_t>(random() % 2) *
                      static_cast<int64_t>(random() % static_cast<uint64_t>(rest + 1));
    d.parts.push_back(i + 1 == replicas ? rest : part);
    rest -= d.parts.back();
    d.credit.push_back(0);
  }
  for (size_t i = 0; i + 1 < replicas; i += 2) {
    const auto moved = kHalf + static_cast<int64_t>(random() % kHalf);
    d.credit[i] = moved;
    d.credit[i + 1] = -moved;
  }
  std::shuffle(d.credit.begin(), d.credit.end(), random);
  d.num_tokens = static_cast<int>(random() % 4);
  return d;
}

std::string play_division(uint64_t seed, const Mutation& mutation, std::set<Site>* sites) {
  const Division d = random_division(seed);
  const auto replicas = static_cast<int32_t>(d.parts.size());
  const ExchangeShape shape{
      .slots_per_rank = replicas, .max_tokens = 3, .row_bytes = 16, .result_bytes = 16};
  EmulatedDevices devices({.max_threads = 32, .seed = seed});
  auto ranks =
      DispatchCombine::create_all(devices, shape, {.num_threads = 32, .num_index_threads = 32});
  ep::SlotChooser::ReplicaTable table{
      .first = {0, replicas}, .slots = {}, .parts = d.parts, .credit = d.credit};
  for (int32_t i = 0; i < replicas; ++i) table.slots.push_back(i);
  const ReplicaTable on_device = *(*ranks)[0].upload(table);
  const std::vector<int32_t> words = {d.num_tokens, 0, 0, 0, 0};  // then experts: all 0
  auto* memory = reinterpret_cast<int32_t*>(*devices.allocate(0, words.size() * 4, false));
  auto* slots = reinterpret_cast<int32_t*>(*devices.allocate(0, words.size() * 4, false));
  EXPECT_TRUE(devices.write(0, memory, words.data(), words.size() * 4).ok());
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  EXPECT_TRUE((*ranks)[0].choose_slots(on_device, memory, memory + 1, slots).ok());
  const Status finished = devices.finish();
  if (sites != nullptr) {
    sites->insert(devices.machine().sites().begin(), devices.machine().sites().end());
  }
  if (!finished.ok()) return finished.message();
  std::vector<int64_t> credit = d.credit, quotas(d.parts.size());
  if (d.num_tokens > 0) ep::round_with_credit(d.num_tokens, d.parts, credit, quotas);
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < replicas; ++i) {
    if (on_device.credit[i] != credit[i]) return "another credit";
    expected.insert(expected.end(), static_cast<size_t>(quotas[i]), i);
  }
  const bool is_equal = std::equal(expected.begin(), expected.end(), slots);
  return is_equal ? "" : "other slots";
}

TEST(ChooseSlotsTest, DividesAsTheCpuDividesWhateverTheCredits) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ASSERT_EQ(play_division(seed, {}, nullptr), "") << "seed " << seed;
  }
}

TEST(ChooseSlotsTest, ChoosesTheSlotsThatTheCpuChooses) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ASSERT_EQ(play_emulated(seed, {}, nullptr), "") << "seed " << seed;
  }
}

std::string play_counts(uint64_t seed, const Mutation& mutation, std::set<Site>* sites) {
  const ChoiceCase c = random_choice_by_counts(seed);
  EmulatedDevices devices({.num_devices = c.shape.ep_size, .max_threads = 64, .seed = seed});
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  const std::string message = play_choice_by_counts(devices, c).message();
  if (sites != nullptr) {
    sites->insert(devices.machine().sites().begin(), devices.machine().sites().end());
  }
  return message;
}

TEST(ChooseByCountsTest, ChoosesTheSlotsThatTheCpuChooses) {
  const char* wanted = std::getenv("WIDEEP_CUDA_ROUNDS");
  const uint64_t rounds = wanted == nullptr ? 300 : std::strtoull(wanted, nullptr, 10);
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    ASSERT_EQ(play_counts(seed, {}, nullptr), "") << "seed " << seed;
  }
}

TEST(ChooseByCountsTest, PlacementsThatDoNotFitAreRefused) {
  EmulatedDevices devices({});
  const ExchangeShape shape{
      .ep_size = 2, .num_experts = 2, .slots_per_rank = 2, .row_bytes = 16, .result_bytes = 16};
  balance::Placement placement{.num_experts = 2, .ep_size = 2, .slot_to_expert = {0, 1, 1, 0}};
  const auto message = [&](int ranks_per_node) {
    return upload_replicas(devices, 0, shape, placement, ranks_per_node).status().message();
  };
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(3), "replicas on GPUs: 3 ranks per node, expected a divisor of 2");
  placement.slot_to_expert = {0, 1};
  EXPECT_EQ(message(1),
            "replicas on GPUs: a placement of 2 experts on 2 slots of 2 ranks, expected 2 on 4 of "
            "2");
  placement.slot_to_expert = {0, 0, 0, 0};
  EXPECT_NE(message(1), "");  // expert 1 has no slot
}

bool is_in_one_of(const Site& site, std::initializer_list<const char*> files) {
  return std::ranges::any_of(
      files, [&](const char* file) { return site.file.find(file) != std::string::npos; });
}

TEST(ChooseByCountsTest, EveryFaultInTheKernelIsFound) {
  constexpr uint64_t kCases = 200;
  std::set<Site> all, sites;
  for (uint64_t seed = 1; seed <= kCases; ++seed) play_counts(seed, {}, &all);
  for (const Site& site : all) {
    if (is_in_one_of(site, {"choose_by_counts", "resplit_shares", "share_solver", "token_split"})) {
      sites.insert(site);
    }
  }
  EXPECT_EQ(missed_faults(sites,
                          [&](const Mutation& mutation) {
                            for (uint64_t seed = 1; seed <= kCases; ++seed) {
                              std::string message = play_counts(seed, mutation, nullptr);
                              if (!message.empty()) return message;
                            }
                            return std::string();
                          }),
            "");
}

TEST(ChooseSlotsTest, EveryFaultInTheKernelIsFound) {
  constexpr uint64_t kCases = 30, kDivisions = 300;
  std::set<Site> all, sites;
  for (uint64_t seed = 1; seed <= kCases; ++seed) play_emulated(seed, {}, &all);
  for (uint64_t seed = 1; seed <= kDivisions; ++seed) play_division(seed, {}, &all);
  for (const Site& site : all) {
    if (is_in_one_of(site, {"choose_slots", "token_split"})) sites.insert(site);
  }
  EXPECT_EQ(missed_faults(sites,
                          [&](const Mutation& mutation) {
                            for (uint64_t seed = 1; seed <= kCases; ++seed) {
                              std::string message = play_emulated(seed, mutation, nullptr);
                              if (!message.empty()) return message;
                            }
                            for (uint64_t seed = 1; seed <= kDivisions; ++seed) {
                              std::string message = play_division(seed, mutation, nullptr);
                              if (!message.empty()) return message;
                            }
                            return std::string();
                          }),
            "");
}

}  // namespace
}  // namespace wideep::cuda
