// SPDX-License-Identifier: Apache-2.0
//
// Bytes are worked out by hand. Times are held against reading_time(), which has tests of its own,
// and against what must be so of any machine: a faster disk, more memory and more nodes help.
#include "advise/beyond_memory.h"

#include <gtest/gtest.h>

#include "advise/mixture_testing.h"
#include "cost/expert_load.h"
#include "model/model_division.h"

namespace wideep::advise {
namespace {

using kernels::WeightFormat;

// 16 layers of 64 experts, each 3 · 2,048 · 1,024 weights: 12.9 GB in bf16.
constexpr double kExpert = 3.0 * 2048 * 1024 * 2;
constexpr double kExperts = 16 * 64 * kExpert;
// Queries and results 2 · 2,048², keys and values 2 · 2,048 · 512; in float32 the router,
// 2,048 · 64, and norms of 2,048 and 128 elements.
constexpr double kDense =
    16 * ((2.0 * 2048 * 2048 + 2.0 * 2048 * 512) * 2 + (2048 * 64 + 2.0 * 2048 + 2 * 128) * 4) +
    2048 * 4;
constexpr double kVocabulary = 2.0 * 32000 * 2048 * 2;
// Of 2,048 tokens, keys and values of 4 heads of 128 elements.
constexpr double kCache = 2048.0 * 16 * 2 * 4 * 128 * 2;

// Of two cores with so many bytes together, of which nine tenths may be used.
cost::Hardware machine(double bytes, int nodes = 1) {
  return {.name = "cores",
          .devices_per_node = 2,
          .divisible = true,
          .nodes = nodes,
          .memory_bytes = bytes / 2 / 0.9,
          .memory_bandwidth = 4e10,
          .node_bandwidth = 6e10,
          .disk_bandwidth = 2e9,
          .peak = {{WeightFormat::kBf16, 5e11}},
          .node_link = {.latency = 1e-7, .bandwidth = 1e10},
          .node_link_ranks = 2,
          .network = {.latency = 5e-5, .bandwidth = 1e9},
          .iteration = 1e-5};
}

std::vector<PartlyResident> found_on(const cost::Hardware& hardware, const Workload& workload = {},
                                     const HitRates& rates = recorded_hit_rates(1.0)) {
  const model::ModelConfig config = mixture_of(16, 64);
  const balance::ModelLoad load = cost::uniform_load(64, model::moe_layers(config));
  auto found = partly_resident({.hardware = hardware,
                                .config = config,
                                .planned = load,
                                .judged = load,
                                .workload = workload,
                                .choices = {}},
                               rates);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : std::vector<PartlyResident>();
}

double speed_on(const cost::Hardware& hardware) {
  return found_on(hardware).at(0).forecast.expected.tokens_per_second();
}

TEST(PartlyResident, BytesByPlace) {
  const double rest = kDense + kVocabulary + kCache;
  const auto found = found_on(machine(rest + 0.25 * kExperts));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].dense_bytes, rest, 1.0);
  EXPECT_NEAR(found[0].expert_bytes, kExperts, 1.0);
  EXPECT_NEAR(found[0].forecast.share, 0.25, 1e-9);
  // A token reads 4 experts in each layer, 0.547 of them in memory; and of the vocabulary the head.
  const ReadingTime& time = found[0].forecast.expected;
  EXPECT_NEAR(time.hit_rate, 0.547, 1e-9);
  EXPECT_NEAR(time.disk_bytes, 16 * 4 * kExpert * 0.453, 1e3);
  EXPECT_NEAR(time.memory_bytes, 16 * 4 * kExpert * 0.547 + kDense + kVocabulary / 2, 1e3);
  EXPECT_NEAR(time.reading, time.disk_bytes / 2e9, 1e-9);
}

TEST(PartlyResident, BoundsOfTheHitRate) {
  const ReadingForecast forecast = found_on(machine(8e9)).at(0).forecast;
  EXPECT_LT(forecast.uniform.tokens_per_second(), forecast.expected.tokens_per_second());
  EXPECT_LT(forecast.expected.tokens_per_second(), forecast.upper.tokens_per_second());
  const HitRates measured{.expected = {.source = "", .points = {{0.5, 0.9}}}, .upper = {}};
  const ReadingForecast own = found_on(machine(8e9), {}, measured).at(0).forecast;
  EXPECT_EQ(own.expected.seconds, own.upper.seconds);
}

TEST(PartlyResident, MoreMemoryAFasterDiskAndAnotherNodeHelp) {
  const double before = speed_on(machine(6e9));
  EXPECT_LT(before, speed_on(machine(8e9)));
  EXPECT_LT(before, speed_on(machine(6e9, 2)));
  cost::Hardware fast = machine(6e9);
  fast.disk_bandwidth = 7e9;
  EXPECT_LT(before, speed_on(fast));
  fast.disk_bandwidth = 0.0;  // unknown
  EXPECT_LT(before, speed_on(fast));
}

TEST(PartlyResident, SeveralRequestsShareWhatIsRead) {
  const auto one = found_on(machine(6e9)), four = found_on(machine(6e9), {.concurrency = 4.0});
  EXPECT_EQ(four[0].requests, 4);
  EXPECT_NEAR(four[0].dense_bytes - one[0].dense_bytes, 3 * kCache, 1.0);
  EXPECT_LT(four[0].forecast.expected.disk_bytes, one[0].forecast.expected.disk_bytes);
}

TEST(PartlyResident, NothingWhereTheModelFitsOrNothingCanBeKept) {
  EXPECT_TRUE(found_on(machine(15e9)).empty());
  EXPECT_TRUE(found_on(machine(kDense)).empty());
  EXPECT_TRUE(found_on(machine(7.2e9, 2)).empty());  // half of the experts on each
  cost::Hardware gpu = machine(6e9);
  gpu.divisible = false;
  EXPECT_TRUE(found_on(gpu).empty());
}

}  // namespace
}  // namespace wideep::advise
