// SPDX-License-Identifier: Apache-2.0
//
// Statistics on the device are plain sums, and a balancer on another stream gets all of them, in
// order, whenever it looks.
#include "cuda/load_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/emulated/emulated_devices.h"
#include "cuda/emulated/seeded_faults_testing.h"
#include "cuda/load_statistics_testing.h"

namespace wideep::cuda {
namespace {

std::string play_emulated(uint64_t seed, const Mutation& mutation, std::set<Site>* sites) {
  const StatisticsCase c = random_statistics(seed);
  EmulatedDevices devices({.num_devices = c.num_streams(), .max_threads = 64, .seed = seed});
  devices.set_max_delay(seed % 2 == 0 ? 500 : 0);
  devices.machine().set_mutation(mutation);
  devices.machine().record_sites(sites != nullptr);
  const std::string message = play_statistics(devices, c).message();
  if (sites != nullptr) {
    sites->insert(devices.machine().sites().begin(), devices.machine().sites().end());
  }
  return message;
}

TEST(LoadStatisticsTest, ABalancerGetsAllSumsWheneverItLooks) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ASSERT_EQ(play_emulated(seed, {}, nullptr), "") << "seed " << seed;
  }
}

TEST(LoadStatisticsTest, WrongInputIsRefused) {
  EmulatedDevices devices({.num_devices = 1});
  ExchangeShape shape{.num_experts = 4, .slots_per_rank = 4, .row_bytes = 16, .result_bytes = 16};
  const auto ranks = DispatchCombine::create_all(devices, shape, {});
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  EXPECT_THAT(LoadStatistics::create(devices, (*ranks)[0].exchange(), 0).status().message(),
              ::testing::HasSubstr("0 layers, expected at least 1"));
  auto statistics = LoadStatistics::create(devices, (*ranks)[0].exchange(), 2);
  ASSERT_TRUE(statistics.ok());
  EXPECT_THAT(statistics->count(nullptr, nullptr, nullptr, 2).message(),
              ::testing::HasSubstr("layer 2, expected 0 to 1"));
}

TEST(LoadStatisticsTest, EveryFaultInTheKernelsIsFound) {
  constexpr uint64_t kCases = 60;
  std::set<Site> all, sites;
  for (uint64_t seed = 1; seed <= kCases; ++seed) play_emulated(seed, {}, &all);
  for (const Site& site : all) {
    if (site.file.find("load_counts") != std::string::npos) sites.insert(site);
  }
  EXPECT_EQ(missed_faults(sites,
                          [&](const Mutation& mutation) {
                            for (uint64_t seed = 1; seed <= kCases; ++seed) {
                              std::string message = play_emulated(seed, mutation, nullptr);
                              if (!message.empty()) return message;
                            }
                            return std::string();
                          }),
            "");
}

}  // namespace
}  // namespace wideep::cuda
