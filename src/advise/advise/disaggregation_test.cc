// SPDX-License-Identifier: Apache-2.0
//
// Servers are held against the steps that they consist of, advice against what must be so whatever a
// machine's constants are.
#include "advise/disaggregation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advise/config_files.h"
#include "advise/mixture_testing.h"
#include "advise/workload_steps.h"
#include "model/kv_layout.h"
#include "model/model_division.h"
#include "parallel/parallel_config.h"
#include "recordings/balancer_yaml.h"

namespace wideep::advise {
namespace {

using kernels::WeightFormat;
using testing::HasSubstr;

TEST(LastPages, AreHalfAPageOfAPromptOrAllOfAShortOne) {
  const model::StepShape pages = last_pages(2, {.isl = 1000});
  EXPECT_EQ(pages, (model::StepShape{.num_tokens = 64,
                                     .num_logit_rows = 2,
                                     .attended = 64 * (1000 - 16),
                                     .cached = 2 * (1000 - 32),
                                     .num_cached = 2}));
  const model::StepShape all = last_pages(1, {.isl = 64});
  EXPECT_EQ(all.num_tokens, 64);
  EXPECT_EQ(all.cached, 0);
  EXPECT_EQ(all.num_cached, 0);
}

TEST(PrefillServer, HidesTheTransferOfAllChunksButTheLast) {
  PrefillServer server{.chunks = 4, .seconds = 4.0, .transfer = 2.0};
  EXPECT_DOUBLE_EQ(server.exposed(), 0.5);
  EXPECT_DOUBLE_EQ(server.ttft(), 1.5 * 4.0 + 0.5);
  // Links that are slower than computing: the first chunk's time is all that they do not take.
  server.transfer = 8.0;
  EXPECT_DOUBLE_EQ(server.exposed(), 8.0 - 3.0);
  server.transfer = 0.0;
  EXPECT_DOUBLE_EQ(server.exposed(), 0.0);
}

TEST(ServerNames, AreTheFields) {
  MatchedServers servers;
  servers.ratio = {.prefill = 1, .generation = 2};
  servers.prefill.layout = {.ep = 4, .attention_dp = false, .num_slots = 64};
  servers.generation.layout = {.ep = 8, .num_slots = 64};
  EXPECT_EQ(name_of(servers), "CTX=1xTEP-4|GEN=2xDEP-8");
  servers.prefill.layout = {.num_slots = 64};
  servers.generation.layout = {.expert_slices = 4, .stages = 2, .context = 2, .num_slots = 64};
  EXPECT_EQ(name_of(servers), "CTX=1xTP-1|GEN=2xDP-16/PP-2/CP-2");
}

class Disaggregation : public testing::Test {
 protected:
  Question question(const Workload& workload) const {
    return {.hardware = hardware_,
            .config = config_,
            .planned = load_,
            .judged = load_,
            .workload = workload,
            .choices = {.max_ranks = 8,
                        .max_drafts = workload.acceptance > 0.0 ? 3 : 0,
                        .formats = {WeightFormat::kFp8}}};
  }
  DisaggregatedAdvice advice(const Workload& workload) {
    const Question asked = question(workload);
    auto found = advise(asked);
    EXPECT_TRUE(found.ok()) << found.status().message();
    aggregated_ = *std::move(found);
    auto servers = disaggregate(asked, aggregated_);
    EXPECT_TRUE(servers.ok()) << servers.status().message();
    return *std::move(servers);
  }
  cost::StepCost cost(const Question& asked, const cost::Layout& layout) {
    return step_cost(asked, layout).value();
  }

  cost::Hardware hardware_ = cost::shipped_hardware("h100_sxm").value();
  model::ModelConfig config_ = mixture_of(16, 64);
  balance::ModelLoad load_ = cost::uniform_load(64, model::moe_layers(config_));
  Advice aggregated_;
};

constexpr cost::Layout kServer{.ep = 4, .num_slots = 64, .format = WeightFormat::kFp8};

TEST_F(Disaggregation, AServerOfPromptsIsItsChunks) {
  const Question asked = question({.isl = 20000, .osl = 100});
  const cost::StepCost cost = this->cost(asked, kServer);
  const PrefillServer server = prefill_server(cost, asked, 1);
  EXPECT_EQ(server.chunks, 3);  // of 8,192
  const double chunk = cost.step(chunk_of(6667, asked.workload, {})).seconds();
  EXPECT_NEAR(server.seconds, 3 * chunk, 1e-9);
  EXPECT_NEAR(server.requests, 4 / server.seconds, 1e-9);  // a prompt on each of 4 ranks
  // 312 pages of each, over the network; a rank sends its own.
  const model::KvLayout kv(config_, Dtype::kBf16, 1);
  const double bytes = 312.0 * static_cast<double>(kv.page_bytes());
  EXPECT_NEAR(server.transfer, 22e-6 + bytes / 50e9, 1e-9);
}

TEST_F(Disaggregation, LinksThatAreTooSlowBoundTheRequests) {
  const Question asked = question({.isl = 8000, .osl = 100});
  const PrefillServer fast = prefill_server(cost(asked, kServer), asked, 1);
  EXPECT_LT(fast.transfer, fast.seconds);
  hardware_.network.bandwidth = 1e8;
  const PrefillServer slow = prefill_server(cost(asked, kServer), asked, 1);
  EXPECT_DOUBLE_EQ(slow.seconds, fast.seconds);
  EXPECT_DOUBLE_EQ(slow.requests, 4 / slow.transfer);
  EXPECT_GT(slow.ttft(), fast.ttft());
}

TEST_F(Disaggregation, MorePromptsCostRequestsAndLastPagesCostLittle) {
  const Question asked = question({.isl = 1000, .osl = 100});
  const cost::StepCost cost = this->cost(asked, kServer);
  double before = 0.0, ttft = 0.0;
  for (const int prompts : {1, 2, 4, 8}) {
    const PrefillServer server = prefill_server(cost, asked, prompts);
    EXPECT_GT(server.requests, before);
    EXPECT_GT(server.ttft(), ttft);
    before = server.requests;
    ttft = server.ttft();
  }
  before = 0.0;
  for (const int batch : {1, 8, 64}) {
    const Candidate server = generation_server(cost, asked, batch);
    EXPECT_GT(server.tpot, before);
    EXPECT_GT(server.longest, server.step.seconds());
    EXPECT_GE(server.tpot, server.step.seconds());
    EXPECT_LE(server.tpot, server.longest);
    before = server.tpot;
  }
}

TEST_F(Disaggregation, KeepsTheLimitsAndTheRanks) {
  const Workload free{.isl = 8000, .osl = 500};
  const DisaggregatedAdvice any = advice(free);
  ASSERT_TRUE(any.best.has_value());
  Workload limited = free;
  limited.max_tpot = any.best->generation.tpot / 2;
  limited.max_ttft = any.best->ttft() / 2;
  const DisaggregatedAdvice found = advice(limited);
  ASSERT_TRUE(found.best.has_value()) << found.reasons.front();
  EXPECT_LE(found.best->generation.tpot, *limited.max_tpot);
  EXPECT_LE(found.best->ttft(), *limited.max_ttft);
  EXPECT_LE(found.best->ratio.ranks, 8);
  EXPECT_LT(found.best->tokens_per_rank, any.best->tokens_per_rank);
  for (const MatchedServers& each : found.pareto) {
    EXPECT_LE(each.tokens_per_rank, found.best->tokens_per_rank);
    EXPECT_LE(each.tokens_per_rank, each.exact * (1 + 1e-9));
    EXPECT_EQ(each.prefill.layout.drafts, 0);
  }
  // Both kinds carry what they are said to.
  const MatchedServers& best = *found.best;
  const double requests = best.tokens_per_rank * best.ratio.ranks / limited.osl;
  EXPECT_LE(requests, best.prefill.requests * best.ratio.prefill * (1 + 1e-9));
  EXPECT_LE(requests * limited.osl, best.generation.tokens_per_rank * best.ratio.generation *
                                        best.generation.layout.num_ranks() * (1 + 1e-9));
}

TEST_F(Disaggregation, SaysWhatIsNotPossible) {
  const DisaggregatedAdvice none = advice({.isl = 8000, .osl = 500, .max_tpot = 1e-6});
  EXPECT_FALSE(none.best.has_value());
  EXPECT_THAT(none.reasons, testing::ElementsAre(HasSubstr("no server generates with 0.0 ms")));
  const DisaggregatedAdvice early = advice({.isl = 8000, .osl = 500, .max_ttft = 1e-6});
  EXPECT_THAT(early.reasons, testing::ElementsAre(HasSubstr("no server computes prompts of 8000")));
}

// Where prompts are nearly nothing, a server that only computes them is of no use.
TEST_F(Disaggregation, ShortPromptsGainNothing) {
  const DisaggregatedAdvice found = advice({.isl = 64, .osl = 2000});
  ASSERT_TRUE(found.best.has_value());
  EXPECT_EQ(found.prompt_bytes, 0.0);
  EXPECT_LT(found.best->tokens_per_rank, 1.03 * aggregated_.best->tokens_per_rank);
  EXPECT_THAT(found.reasons, testing::Contains(HasSubstr("aggregated is as good")));
}

// Chunks make the longest time between two tokens, last pages nearly none.
TEST_F(Disaggregation, LongPromptsDoNotHoldUpAnswers) {
  const DisaggregatedAdvice found = advice({.isl = 8000, .osl = 500, .max_tpot = 0.0055});
  ASSERT_TRUE(found.best.has_value() && aggregated_.best.has_value());
  EXPECT_LT(found.best->generation.longest, 0.5 * aggregated_.best->longest);
  EXPECT_GT(found.best->gain(), 1.1);
  // What stands beside is at least what a layout of the sweep reaches.
  for (const MatchedServers& each : found.pareto) {
    for (const Candidate& other : aggregated_.all) {
      if (other.tpot > each.generation.tpot) continue;
      EXPECT_LE(other.tokens_per_rank, each.aggregated);
    }
  }
}

// Two servers on two cores have one each, and aggregated layouts both: nobody gains by cores that
// are counted twice.
TEST_F(Disaggregation, ServersOfAMachineOfCoresShareIt) {
  hardware_ = {.name = "cores",
               .devices_per_node = 2,
               .divisible = true,
               .memory_bytes = 1e11,
               .memory_bandwidth = 4e10,
               .node_bandwidth = 6e10,
               .peak = {{WeightFormat::kFp8, 5e11}},
               .node_link = {.latency = 1e-7, .bandwidth = 1e10},
               .node_link_ranks = 2,
               .iteration = 1e-5};
  const DisaggregatedAdvice found = advice({.isl = 2000, .osl = 200, .concurrency = 16.0});
  ASSERT_TRUE(found.best.has_value());
  EXPECT_EQ(found.best->ratio.ranks, 2);
  const auto all = std::ranges::max(aggregated_.all, {}, &Candidate::tokens_per_rank);
  const double of_cores = all.tokens_per_rank * all.layout.num_ranks() / 2;
  EXPECT_LE(found.best->aggregated, of_cores * (1 + 1e-9));
  EXPECT_GT(found.best->aggregated, 0.0);
  EXPECT_LT(found.best->tokens_per_rank, 1.2 * of_cores);
}

TEST_F(Disaggregation, WeighsDraftsWhereAsked) {
  EXPECT_TRUE(advice({.isl = 1000, .osl = 500}).drafting.empty());
  const DisaggregatedAdvice found = advice({.isl = 1000, .osl = 500, .acceptance = 0.9});
  ASSERT_FALSE(found.drafting.empty());
  EXPECT_GT(found.drafting.front().tokens_per_user, found.generation.front().tokens_per_user);
}

TEST_F(Disaggregation, WritesWhatServersRead) {
  const Question asked = question({.isl = 4000, .osl = 100, .acceptance = 0.8});
  MatchedServers servers{.prefill = prefill_server(cost(asked, kServer), asked, 2)};
  cost::Layout layout = kServer;
  layout.ep = 8;
  layout.num_slots = 72;
  layout.drafts = 3;
  servers.generation = generation_server(cost(asked, layout), asked, 24);
  servers.ratio = {.prefill = 2, .generation = 1, .ranks = 16};
  const auto files = disaggregated_files(
      asked, servers,
      {.config = "d.yaml", .context_balancer = "c.yaml", .generation_balancer = "g.yaml"});
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_THAT(files->config, HasSubstr("urls: [\"localhost:8001\", \"localhost:8002\"]"));
  EXPECT_THAT(files->config, HasSubstr("urls: [\"localhost:8003\"]"));
  EXPECT_THAT(files->config, HasSubstr("CTX=2xDEP-4|GEN=1xDEP-8"));
  const auto read = [&](const char* part) {
    auto config = parallel::parse_parallel_config(files->config, "d.yaml", part);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return *config;
  };
  const parallel::ParallelConfig context = read("context_servers");
  EXPECT_EQ(context.sizes.moe_ep, 4);
  EXPECT_EQ(context.max_batch_size, 4);  // and those that still travel
  EXPECT_FALSE(context.speculative_config.has_value());
  EXPECT_EQ(context.moe_config.load_balancer_path, "c.yaml");
  // Two rounds of two prompts on each of four ranks.
  ASSERT_TRUE(context.cache_transceiver_config.has_value());
  EXPECT_EQ(context.cache_transceiver_config->max_tokens_in_buffer, 2 * 2 * 4 * 4000);
  const parallel::ParallelConfig generation = read("generation_servers");
  EXPECT_EQ(generation.sizes.moe_ep, 8);
  EXPECT_EQ(generation.cache_transceiver_config->max_tokens_in_buffer, 2 * 2 * 2 * 4 * 4000);
  EXPECT_EQ(generation.max_batch_size, 24);
  EXPECT_EQ(generation.speculative_config->max_draft_len, 3);
  EXPECT_EQ(generation.moe_config.load_balancer_path, "g.yaml");
  EXPECT_EQ(files->context.num_slots, 64);
  EXPECT_EQ(files->generation.num_slots, 72);
}

}  // namespace
}  // namespace wideep::advise
