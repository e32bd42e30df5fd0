// SPDX-License-Identifier: Apache-2.0
//
// Latencies worked out by hand: an iteration takes a second, or a millisecond for each token of the
// fullest batch, so they follow from the order of events alone. Held is which iteration a request
// joins, and from which moment each latency counts: a closed loop's from sending, not from
// arriving. A failure means that the advisor's latencies are not those that a client would measure.
#include "advise/serving_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::advise {
namespace {

using model::StepShape;

SimulationOptions options(int num_batches = 1) {
  return {.num_batches = num_batches,
          .limits = {.max_batch_size = 8, .max_num_tokens = 64, .max_pages = 64}};
}

// A millisecond for each token of the fullest batch.
double by_tokens(std::span<const StepShape> batches) {
  int64_t max = 0;
  for (const StepShape& batch : batches) max = std::max(max, batch.num_tokens);
  return 1e-3 * static_cast<double>(max);
}

TEST(ServingSimulation, OneRequestTakesItsChunksAndTokens) {
  const std::vector<SimulatedRequest> requests = {{.arrival = 5.0, .isl = 100, .osl = 3}};
  const auto served = simulate_serving(requests, options(), by_tokens);
  ASSERT_TRUE(served.ok()) << served.status().message();
  // Chunks of 64 and 36 tokens, the second with the first token; then one token each.
  EXPECT_EQ(served->iterations, 4);
  EXPECT_NEAR(served->ttft.median, 0.100, 1e-9);
  EXPECT_NEAR(served->tpot.median, 0.001, 1e-9);
  EXPECT_NEAR(served->end_to_end.median, 0.102, 1e-9);
  EXPECT_NEAR(served->output_tokens_per_second, 3 / 0.102, 1e-6);
}

TEST(ServingSimulation, TellsWhatAnIterationReadsAndComputes) {
  std::vector<StepShape> seen;
  const std::vector<SimulatedRequest> requests = {{.isl = 70, .osl = 2}};
  const auto record = [&](std::span<const StepShape> batches) {
    seen.push_back(batches[0]);
    return 1.0;
  };
  ASSERT_TRUE(simulate_serving(requests, options(), record).ok());
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], model::StepShape({.num_tokens = 64, .attended = 64 * 65 / 2}));
  EXPECT_EQ(seen[1], model::StepShape({.num_tokens = 6,
                                       .num_logit_rows = 1,
                                       .attended = 65 + 66 + 67 + 68 + 69 + 70,
                                       .cached = 64,
                                       .num_cached = 1}));
  EXPECT_EQ(seen[2], model::decode_step(1, 70, 0));
}

// Four ranks share each sequence in turns of a page: a prompt of 256 tokens is 64 on each.
TEST(ServingSimulation, RanksThatShareSequencesComputeTheirTurns) {
  SimulationOptions shared = options();
  shared.context_ranks = 4;
  shared.limits.max_num_tokens = 256;
  const std::vector<SimulatedRequest> requests = {{.isl = 256, .osl = 2}};
  std::vector<StepShape> seen;
  const auto served = simulate_serving(requests, shared, [&](std::span<const StepShape> batches) {
    EXPECT_EQ(batches.size(), 1u);
    seen.push_back(batches[0]);
    return by_tokens(batches);
  });
  ASSERT_TRUE(served.ok()) << served.status().message();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].num_tokens, 64);
  EXPECT_EQ(seen[0].attended, 64 * (193 + 256) / 2);  // the last turn
  EXPECT_EQ(seen[1], model::decode_step(1, 256, 0));
  EXPECT_NEAR(served->end_to_end.median, 0.065, 1e-9);
}

TEST(ServingSimulation, RequestsWaitForTheIterationUnderWay) {
  const std::vector<SimulatedRequest> requests = {{.arrival = 0.0, .isl = 1, .osl = 2},
                                                  {.arrival = 0.5, .isl = 1, .osl = 1}};
  const auto served =
      simulate_serving(requests, options(), [](std::span<const StepShape>) { return 1.0; });
  ASSERT_TRUE(served.ok());
  // The first ends at 2; the second begins with the iteration at 1 and ends at 2, too.
  EXPECT_EQ(served->iterations, 2);
  EXPECT_NEAR(served->ttft.maximum, 1.5, 1e-9);
}

TEST(ServingSimulation, BatchesShareRequestsAndWaitForEachOther) {
  const std::vector<SimulatedRequest> requests(4, {.isl = 32, .osl = 1});
  const auto served = simulate_serving(requests, options(2), by_tokens);
  ASSERT_TRUE(served.ok());
  EXPECT_EQ(served->iterations, 1);  // two prompts of 32 on each
  EXPECT_NEAR(served->seconds, 0.064, 1e-9);
}

TEST(ServingSimulation, AClosedLoopKeepsItsNumberOfRequests) {
  const std::vector<SimulatedRequest> requests(6, {.arrival = 100.0, .isl = 1, .osl = 4});
  SimulationOptions closed = options();
  closed.concurrency = 2;
  int64_t max = 0;
  const auto served = simulate_serving(requests, closed, [&](std::span<const StepShape> batches) {
    max = std::max(max, batches[0].num_tokens);
    return 1.0;
  });
  ASSERT_TRUE(served.ok());
  EXPECT_EQ(max, 2);
  EXPECT_EQ(served->iterations, 12);
}

TEST(ServingSimulation, ServingTakesTimeBesideIterations) {
  const std::vector<SimulatedRequest> requests = {{.arrival = 0.0, .isl = 1, .osl = 3},
                                                  {.arrival = 0.0, .isl = 1, .osl = 3}};
  SimulationOptions serving = options();
  serving.overhead = {.request = 0.5, .iteration = 0.25, .token = 0.125};
  const auto served =
      simulate_serving(requests, serving, [](std::span<const StepShape>) { return 1.0; });
  ASSERT_TRUE(served.ok()) << served.status().message();
  // Known after 0.5; then three iterations of 1 + 0.25 + 2 · 0.125 with a token of each.
  EXPECT_EQ(served->iterations, 3);
  EXPECT_NEAR(served->ttft.median, 2.0, 1e-9);
  EXPECT_NEAR(served->tpot.median, 1.5, 1e-9);
  EXPECT_NEAR(served->seconds, 5.0, 1e-9);
}

TEST(ServingSimulation, AClosedLoopWaitsForItsNextRequest) {
  const std::vector<SimulatedRequest> requests(3, {.isl = 1, .osl = 2});
  SimulationOptions closed = options();
  closed.concurrency = 1;
  closed.overhead.request = 0.5;
  const auto served =
      simulate_serving(requests, closed, [](std::span<const StepShape>) { return 1.0; });
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_NEAR(served->ttft.maximum, 1.5, 1e-9);  // from sending, not from arriving
  EXPECT_NEAR(served->seconds, 3 * 2.5, 1e-9);
}

TEST(ServingSimulation, ARequestUnderWayMissesTheIterationThatBegins) {
  const std::vector<SimulatedRequest> requests = {{.arrival = 0.0, .isl = 1, .osl = 3},
                                                  {.arrival = 0.9, .isl = 1, .osl = 1}};
  SimulationOptions late = options();
  late.overhead.request = 0.2;
  const auto served =
      simulate_serving(requests, late, [](std::span<const StepShape>) { return 1.0; });
  ASSERT_TRUE(served.ok()) << served.status().message();
  // Iterations begin at 0.2, 1.2 and 2.2; the second request is known at 1.1.
  EXPECT_EQ(served->iterations, 3);
  EXPECT_NEAR(served->ttft.maximum, 1.3, 1e-9);
}

TEST(ServingSimulation, StagesHaveIterationsUnderWay) {
  SimulationOptions staged = options();
  staged.limits.micro_batches = 2;
  const auto whole = [](std::span<const StepShape>) { return 1.0; };
  // One request fills one of two micro-batches: each of its tokens takes the whole way.
  const std::vector<SimulatedRequest> one = {{.isl = 1, .osl = 3}};
  const auto alone = simulate_serving(one, staged, whole);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_EQ(alone->iterations, 3);
  EXPECT_NEAR(alone->ttft.median, 1.0, 1e-9);
  EXPECT_NEAR(alone->tpot.median, 1.0, 1e-9);
  // Two take turns, half an iteration apart, once their prompts are read.
  const std::vector<SimulatedRequest> two(2, {.isl = 1, .osl = 11});
  const auto both = simulate_serving(two, staged, whole);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_NEAR(both->tpot.median, 1.0, 0.06);
  EXPECT_LE(both->seconds, 12.0);
}

// Without a limit of its own each stage would have all the time of a beat for itself.
TEST(ServingSimulation, AFullPipelineServesAsManyTokensAsItsBeatsAllow) {
  SimulationOptions staged = options();
  staged.limits.micro_batches = 4;
  staged.concurrency = 8;
  const std::vector<SimulatedRequest> requests(32, {.isl = 1, .osl = 101});
  const auto served =
      simulate_serving(requests, staged, [](std::span<const StepShape>) { return 1.0; });
  ASSERT_TRUE(served.ok()) << served.status().message();
  // Four micro-batches of two requests: 8 tokens in the time of an iteration.
  EXPECT_NEAR(served->output_tokens_per_second, 8.0, 0.4);
  EXPECT_NEAR(served->tpot.median, 1.0, 0.05);
}

TEST(ServingSimulation, ARequestThatNeverFitsIsAnError) {
  const std::vector<SimulatedRequest> requests = {{.isl = 100000, .osl = 1}};
  EXPECT_FALSE(simulate_serving(requests, options(), by_tokens).ok());
}

}  // namespace
}  // namespace wideep::advise
