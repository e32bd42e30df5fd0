// SPDX-License-Identifier: Apache-2.0
//
// Costs and advice are held against what must be so whatever a machine's constants are: more tokens
// take longer, no exchange is free, a slower link makes no layout faster, no neighbour of the
// recommendation is better than it. A failure means that the model of costs contradicts itself, or
// that the sweep offers what the engine refuses. Memory and bytes over a link are worked out by
// hand.
#include "advise/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advise/config_files.h"
#include "advise/context_part.h"
#include "advise/mixture_testing.h"
#include "advise/neighbours.h"
#include "advise/rank_memory.h"
#include "advise/sweep.h"
#include "advise/what_if.h"
#include "model/model_division.h"
#include "parallel/parallel_config.h"
#include "recordings/balancer_yaml.h"

namespace wideep::advise {
namespace {

using kernels::WeightFormat;
using testing::HasSubstr;

// A mixture of 16 layers with 64 experts.
model::ModelConfig mixture() { return mixture_of(16, 64); }

cost::Hardware h100() { return cost::shipped_hardware("h100_sxm").value(); }

// The busiest expert gets `power` times as steep a share.
balance::ModelLoad load_of(const model::ModelConfig& config, double power) {
  balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  for (auto& layer : load.load) {
    for (size_t e = 0; e < layer.size(); ++e)
      layer[e] = std::pow(1.0 + static_cast<double>(e), -power);
  }
  return load;
}

cost::StepCost cost_of(const cost::Layout& layout, const balance::ModelLoad& load,
                       const cost::Hardware& hardware = h100(),
                       const model::ModelConfig& config = mixture()) {
  std::vector<cost::PlacedLayer> placed;
  for (const auto& layer : load.load) {
    placed.push_back(cost::place_layer(layer, layer, config.routing.top_k,
                                       {.num_experts = config.routing.num_experts,
                                        .ep_size = layout.ep,
                                        .num_slots = layout.num_slots},
                                       true)
                         .value());
  }
  return {hardware, config, layout, std::move(placed)};
}

// Of two cores; the numbers are any.
cost::Hardware cores(int nodes) {
  return {.name = "cores",
          .devices_per_node = 2,
          .divisible = true,
          .nodes = nodes,
          .memory_bytes = 1e11,
          .memory_bandwidth = 4e10,
          .node_bandwidth = 6e10,
          .peak = {{WeightFormat::kBf16, 5e11}},
          .node_link = {.latency = 1e-7, .bandwidth = 1e10},
          .node_link_ranks = 2,
          .network = {.latency = 5e-5, .bandwidth = 1e9},
          .iteration = 1e-5};
}

constexpr cost::Layout kEp8{.ep = 8, .num_slots = 64, .format = WeightFormat::kFp8};

TEST(StepCost, GrowsWithTokensAndContext) {
  const cost::StepCost cost = cost_of(kEp8, load_of(mixture(), 0.0));
  const auto seconds = [&](int batch, int cached) {
    return cost.step(model::decode_step(batch, cached, 0)).seconds();
  };
  EXPECT_LT(seconds(1, 100), seconds(64, 100));
  EXPECT_LT(seconds(64, 100), seconds(64, 10000));
  // Twice the tokens cost less than twice the time: weights are read once.
  EXPECT_LT(seconds(64, 100), 1.9 * seconds(32, 100));
}

// Every figure of a step with windows is that of a context as long as they are.
TEST(StepCost, WhatIsBeyondAWindowCostsNothing) {
  constexpr int kWindow = 128;
  const model::ModelConfig plain = mixture();
  model::ModelConfig windows = plain, chunks = plain, half = plain;
  for (size_t i = 0; i < plain.layers.size(); ++i) {
    windows.layers[i].window = kWindow;
    chunks.layers[i].chunk = kWindow;
    half.layers[i].window = i % 2 == 0 ? kWindow : 0;
  }
  const balance::ModelLoad load = load_of(plain, 0.0);
  cost::Layout shared = kEp8;
  shared.ep = 2;
  shared.context = 4;
  const cost::Layout of_cores{.ep = 4, .num_slots = 64, .format = WeightFormat::kBf16};
  for (const auto& [hardware, layout] :
       {std::pair(h100(), kEp8), std::pair(h100(), shared), std::pair(cores(2), of_cores)}) {
    SCOPED_TRACE(text_of(layout));
    const auto seconds = [&](const model::ModelConfig& config, int cached) {
      return cost_of(layout, load, hardware, config)
          .step(model::decode_step(64, cached, 0))
          .seconds();
    };
    const double full = seconds(plain, kWindow - 1);
    for (const int cached : {100, kWindow - 1, kWindow, 10'000}) {
      const double expected = std::min(full, seconds(plain, cached));
      EXPECT_DOUBLE_EQ(seconds(windows, cached), expected) << cached;
      EXPECT_DOUBLE_EQ(seconds(chunks, cached), expected) << cached;
    }
    EXPECT_LT(full, seconds(half, 10'000));
    EXPECT_LT(seconds(half, 10'000), seconds(plain, 10'000));
    // On cores it also depends on all that is read, which stays in the caches or does not.
    if (!hardware.divisible) {
      EXPECT_NEAR(seconds(half, 10'000), (full + seconds(plain, 10'000)) / 2, 1e-9);
    }
  }
}

TEST(StepCost, ASkewedLoadCostsExpertsAndReplicasGiveItBack) {
  const balance::ModelLoad skewed = load_of(mixture(), 0.7);
  const model::StepShape batch = model::decode_step(2048, 100, 0);
  const double even = cost_of(kEp8, load_of(mixture(), 0.0)).step(batch).experts;
  const double hot = cost_of(kEp8, skewed).step(batch).experts;
  cost::Layout replicas = kEp8;
  replicas.num_slots = 80;
  const double balanced = cost_of(replicas, skewed).step(batch).experts;
  EXPECT_GT(hot, 1.2 * even);
  EXPECT_LT(balanced, 0.9 * hot);
}

TEST(StepCost, OneRankExchangesNothing) {
  const cost::Layout alone{.ep = 1, .num_slots = 64, .format = WeightFormat::kFp8};
  const cost::StepTime time =
      cost_of(alone, load_of(mixture(), 0.0)).step(model::decode_step(8, 9, 0));
  EXPECT_EQ(time.dispatch, 0.0);
  EXPECT_EQ(time.joint, 0.0);
  EXPECT_GT(time.experts, 0.0);
}

// Whatever ranks share, something of it goes over the link between them: with a byte a second it
// takes hours. A slower link never makes a layout faster.
TEST(StepCost, NoExchangeIsFree) {
  const model::ModelConfig config = mixture_of(4, 64);
  const balance::ModelLoad load = cost::uniform_load(64, model::moe_layers(config));
  const model::StepShape batch = model::decode_step(32, 100, 0);
  const auto seconds = [&](const cost::Hardware& hardware, const cost::Layout& layout) {
    return cost_of(layout, load, hardware, config).step(batch).seconds();
  };
  const auto slower = [](cost::Hardware hardware, cost::Link cost::Hardware::* link,
                         double bandwidth) {
    (hardware.*link).bandwidth = bandwidth;
    return hardware;
  };
  for (const cost::Hardware& hardware : {h100(), cores(2), cores(4)}) {
    int num_crossing = 0;
    for (const cost::Layout& layout : layouts_of(hardware, config, {.max_ranks = 16})) {
      if (layout.num_slots > 64 || (layout.format != WeightFormat::kFp8 && !hardware.divisible)) {
        continue;
      }
      SCOPED_TRACE(hardware.name + ", " + text_of(layout));
      const bool crosses = hardware.divisible ? layout.num_ranks() > 1 : layout.num_ranks() > 8;
      num_crossing += crosses;
      for (const auto link : {&cost::Hardware::node_link, &cost::Hardware::network}) {
        double before = 0.0;
        for (const double bandwidth : {1e12, 1e10, 1e8, 1e4, 1.0}) {
          const double now = seconds(slower(hardware, link, bandwidth), layout);
          EXPECT_GE(now, before) << bandwidth;
          before = now;
        }
        const bool is_used = link == &cost::Hardware::network
                                 ? crosses
                                 : !hardware.divisible && layout.num_ranks() > 1 && !crosses;
        if (is_used) {
          EXPECT_GT(before, 1000.0);
        } else if (link == &cost::Hardware::network) {
          EXPECT_LT(before, 1.0);
        }
      }
    }
    EXPECT_GT(num_crossing, 20);
  }
}

TEST(StepCost, SlicesExchangeRowsAndColumns) {
  const balance::ModelLoad load = load_of(mixture(), 0.0);
  const cost::Layout whole = kEp8;
  cost::Layout sliced = kEp8;
  sliced.ep = 4;
  sliced.expert_slices = 2;
  const model::StepShape batch = model::decode_step(256, 100, 0);
  const cost::StepTime of_whole = cost_of(whole, load).step(batch);
  const cost::StepTime of_sliced = cost_of(sliced, load).step(batch);
  // Twice the rows are sent, as many bytes come back, and the slices meet.
  EXPECT_GT(of_sliced.dispatch, 1.2 * of_whole.dispatch);
  EXPECT_NEAR(of_sliced.combine / of_whole.combine, 1.0, 0.2);
  EXPECT_EQ(of_whole.joint, 0.0);
  // 2,048 tokens with 4 rows each on 4 owners: half of each row's 1,024 columns comes from another.
  const cost::Link link = h100().node_link;
  const double even = 2048.0 * 4 / 4 * 512 * 2 / link.bandwidth;
  EXPECT_GT(of_sliced.joint, 16 * (link.latency + even));
  EXPECT_LT(of_sliced.joint, 16 * (link.latency + 1.2 * even));
}

TEST(Advise, CrossesNoNetworkOfAByteASecond) {
  const model::ModelConfig config = mixture_of(4, 64);
  const balance::ModelLoad load = load_of(config, 0.3);
  const auto best_on = [&](cost::Hardware hardware, const Workload& workload) {
    hardware.network.bandwidth = 1.0;
    const auto advice = advise({.hardware = hardware,
                                .config = config,
                                .planned = load,
                                .judged = load,
                                .workload = workload,
                                .choices = {.max_ranks = 16}});
    EXPECT_TRUE(advice.ok() && advice->best) << advice.status().message();
    return advice->best->layout;
  };
  for (const char* name : {"h100_sxm", "h200_sxm", "b200_sxm"}) {
    const cost::Hardware hardware = cost::shipped_hardware(name).value();
    for (const Workload& workload :
         {Workload{}, Workload{.isl = 8192, .osl = 64}, Workload{.concurrency = 16.0}}) {
      const cost::Layout best = best_on(hardware, workload);
      EXPECT_LE(best.num_ranks(), hardware.node_link_ranks) << name << ": " << text_of(best);
    }
  }
  EXPECT_EQ(best_on(cores(2), {}).num_ranks(), 1);
}

TEST(Memory, IsDividedAmongRanks) {
  const model::ModelConfig config = mixture();
  cost::Layout layout{.ep = 1, .num_slots = 64, .format = WeightFormat::kBf16};
  const RankMemory alone = memory_of(config, layout);
  // All parameters in bf16, but for norms.
  const double all = 2.0 * static_cast<double>(model::count_parameters(config).all);
  EXPECT_NEAR(alone.weights / all, 1.0, 0.01);
  EXPECT_DOUBLE_EQ(alone.token, 16 * 2 * 4 * 128 * 2.0);
  layout.ep = 8;
  const RankMemory shared = memory_of(config, layout);
  EXPECT_LT(shared.weights, alone.weights / 3);
  EXPECT_DOUBLE_EQ(shared.token, alone.token);
  layout.stages = 2;
  EXPECT_DOUBLE_EQ(memory_of(config, layout).token, alone.token / 2);
}

TEST(Sweep, HasEveryCombinationOnce) {
  const std::vector<cost::Layout> layouts = layouts_of(h100(), mixture(), {.max_ranks = 16});
  for (size_t i = 0; i < layouts.size(); ++i) {
    EXPECT_LE(layouts[i].num_ranks(), 16);
    EXPECT_EQ(layouts[i].num_slots % layouts[i].ep, 0);
    EXPECT_GE(layouts[i].num_slots, 64);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(layouts[i], layouts[j]);
  }
  EXPECT_THAT(layouts, testing::Contains(kEp8));
}

// Llama 2 7B: heads divide by 32, the columns of feed-forward layers not by 4 times 128.
model::ModelConfig llama() {
  const auto config = model::parse_model_config(R"({
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": false})",
                                                "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

// No expert's width bounds how far a dense model is divided.
TEST(Sweep, DenseModelsHaveEveryNumberOfRanks) {
  const std::vector<cost::Layout> layouts = layouts_of(h100(), llama(), {.max_ranks = 64});
  const auto has = [&](int ranks, bool attention_dp) {
    return std::ranges::any_of(layouts, [&](const cost::Layout& each) {
      return each.tensor_ranks() == ranks && each.num_ranks() == ranks &&
             each.attention_dp == attention_dp;
    });
  };
  for (const int ranks : {1, 2, 4, 8, 16, 32, 64}) {
    EXPECT_TRUE(has(ranks, true)) << ranks;
    EXPECT_EQ(has(ranks, false), ranks > 1 && ranks <= 32) << ranks;
  }
  for (const cost::Layout& each : layouts) {
    EXPECT_EQ(each.ep, 1);
    EXPECT_EQ(each.num_slots, 0);
  }
}

TEST(Neighbours, OfADenseModelHaveNoExperts) {
  const model::ModelConfig config = llama();
  const Workload workload{.isl = 512, .osl = 512};
  const balance::ModelLoad none = cost::uniform_load(1, {});
  const auto advice = advise({.hardware = h100(),
                              .config = config,
                              .planned = none,
                              .judged = none,
                              .workload = workload});
  ASSERT_TRUE(advice.ok() && advice->best) << advice.status().message();
  std::vector<std::string> changes;
  for (const Neighbour& each : neighbours_of(*advice, workload, 0)) {
    EXPECT_THAT(each.change, testing::Not(HasSubstr("expert")));
    EXPECT_THAT(each.change, testing::Not(HasSubstr("attention")));
    changes.push_back(each.change);
  }
  EXPECT_THAT(changes, testing::Contains(HasSubstr(" ranks instead of ")));
}

TEST(Context, ALongPromptIsComputedByItsPart) {
  const balance::ModelLoad load = load_of(mixture(), 0.0);
  cost::Layout layout = kEp8;
  const cost::StepTime alone = cost_of(layout, load).step(model::prompt_step(1, 16384, 0));
  layout.context = 4;
  const ContextDeal deal = context_deal(4, 16384);
  const cost::StepTime shared = cost_of(layout, load).step(busiest_chunk(16384, 16384, deal));
  EXPECT_LT(shared.attention, 0.35 * alone.attention);
  EXPECT_LT(shared.experts, 0.5 * alone.experts);
  EXPECT_EQ(alone.joint, 0.0);
  EXPECT_GT(shared.joint, 0.0);
}

// Others' keys and values come over the link: of a layer the latency, and 3 of 4 positions.
TEST(Context, ReadsOtherRanksPagesOverTheLink) {
  cost::Layout layout = kEp8;
  layout.ep = 2;
  layout.num_slots = 64;
  layout.context = 4;  // 8 ranks, a node
  const double position = 2 * 4 * 128 * 2.0;
  const cost::Link link = h100().node_link;
  const model::StepShape shape = model::decode_step(4, 1000, 0);
  const cost::StepTime time = cost_of(layout, load_of(mixture(), 0.0)).step(shape);
  EXPECT_NEAR(time.joint,
              16 * (link.latency + (1000.0 * 4 / 4 + 4) * 3 * position / link.bandwidth), 1e-9);
}

TEST(Context, DividesTheCacheAndNoWeights) {
  cost::Layout layout = kEp8;
  const RankMemory alone = memory_of(mixture(), layout);
  layout.context = 2;
  EXPECT_EQ(layout.num_ranks(), 16);
  const RankMemory shared = memory_of(mixture(), layout);
  EXPECT_DOUBLE_EQ(shared.token, alone.token / 2);
  EXPECT_DOUBLE_EQ(shared.weights, alone.weights);
}

// Prompts so long that a rank is too slow for them, however few requests there are.
TEST(Context, IsRecommendedForLongPrompts) {
  const model::ModelConfig config = mixture();
  const balance::ModelLoad load = load_of(config, 0.2);
  const auto advise_ttft = [&](std::optional<double> max) {
    const auto advice =
        advise({.hardware = h100(),
                .config = config,
                .planned = load,
                .judged = load,
                .workload = {.isl = 30000, .osl = 64, .max_ttft = max, .concurrency = 1.0},
                .choices = {.max_ranks = 8, .formats = {WeightFormat::kFp8}}});
    EXPECT_TRUE(advice.ok()) << advice.status().message();
    return *advice;
  };
  const Advice free = advise_ttft({});
  double min = 1e9, min_without = 1e9;
  for (const Candidate& each : free.all) {
    double& which = each.layout.context > 1 ? min : min_without;
    which = std::min(which, each.ttft);
  }
  ASSERT_LT(min, min_without);
  const Advice limited = advise_ttft(0.5 * (min + min_without));
  ASSERT_TRUE(limited.best.has_value());
  EXPECT_GT(limited.best->layout.context, 1);
  EXPECT_THAT(limited.reasons, testing::Contains(HasSubstr("ranks share each sequence: without")));
}

TEST(Context, IsOnlyWeighedWhereTheEngineDividesSequences) {
  for (const cost::Layout& layout : layouts_of(h100(), mixture(), {.max_ranks = 16})) {
    parallel::ParallelConfig settings;
    settings.sizes = {.tp = layout.tensor_ranks(),
                      .pp = layout.stages,
                      .cp = layout.context,
                      .moe_tp = layout.expert_slices,
                      .moe_ep = layout.ep};
    settings.enable_attention_dp = layout.attention_dp;
    EXPECT_TRUE(model::check_parts(settings, mixture()).ok()) << text_of(layout);
  }
  // Neither with the layer that drafts.
  model::ModelConfig states = mixture();
  states.num_prediction_layers = 1;
  for (const cost::Layout& layout : layouts_of(h100(), states, {.max_ranks = 16})) {
    EXPECT_EQ(layout.context, 1);
  }
}

TEST(Sweep, BatchesReachTheMost) {
  EXPECT_EQ(batches_up_to(1), (std::vector<int>{1}));
  EXPECT_EQ(batches_up_to(10), (std::vector<int>{1, 2, 3, 4, 6, 8, 10}));
  EXPECT_TRUE(batches_up_to(0).empty());
}

Result<Advice> advice_for(const Workload& workload, double power = 0.5, int max_ranks = 16) {
  const model::ModelConfig config = mixture();
  const balance::ModelLoad load = load_of(config, power);
  return advise({.hardware = h100(),
                 .config = config,
                 .planned = load,
                 .judged = load,
                 .workload = workload,
                 .choices = {.max_ranks = max_ranks, .formats = {WeightFormat::kFp8}}});
}

TEST(Advise, ParetoImprovesInOneAsItLosesTheOther) {
  const auto advice = advice_for({});
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  ASSERT_GE(advice->pareto.size(), 3u);
  for (size_t i = 1; i < advice->pareto.size(); ++i) {
    EXPECT_LT(advice->pareto[i].tokens_per_user, advice->pareto[i - 1].tokens_per_user);
    EXPECT_GT(advice->pareto[i].tokens_per_rank, advice->pareto[i - 1].tokens_per_rank);
  }
  // Without a limit the recommendation is its end.
  ASSERT_TRUE(advice->best.has_value());
  EXPECT_EQ(advice->best->layout, advice->pareto.back().layout);
}

TEST(Advise, KeepsTheLimits) {
  const auto free = advice_for({});
  ASSERT_TRUE(free.ok());
  const double limit = free->best->tpot / 2;
  const auto limited = advice_for({.max_tpot = limit});
  ASSERT_TRUE(limited.ok());
  ASSERT_TRUE(limited->best.has_value()) << limited->nearest;
  EXPECT_LE(limited->best->tpot, limit);
  EXPECT_LT(limited->best->tokens_per_rank, free->best->tokens_per_rank);
  EXPECT_THAT(limited->reasons, testing::Contains(HasSubstr("limited by")));
}

TEST(Advise, SaysWhatIsNearestToAnImpossibleLimit) {
  const auto advice = advice_for({.max_tpot = 1e-6});
  ASSERT_TRUE(advice.ok());
  EXPECT_FALSE(advice->best.has_value());
  EXPECT_THAT(advice->nearest, HasSubstr("no layout has 0.0 ms between tokens; nearest:"));
  const auto rate = advice_for({.rate = 1e9});
  EXPECT_THAT(rate->nearest, HasSubstr("no layout serves 1000000000 requests per second"));
}

TEST(Advise, ARateTakesTheFewestRanks) {
  const auto one = advice_for({.rate = 1.0});
  ASSERT_TRUE(one.ok() && one->best);
  EXPECT_EQ(one->best->layout.num_ranks(), 1);
}

TEST(Advise, RefusesStatisticsOfAnotherModel) {
  const model::ModelConfig config = mixture();
  const balance::ModelLoad other = cost::uniform_load(32, model::moe_layers(config));
  const auto advice =
      advise({.hardware = h100(), .config = config, .planned = other, .judged = other});
  ASSERT_FALSE(advice.ok());
  EXPECT_THAT(advice.status().message(), HasSubstr("16 layers of 32 experts, but the model has"));
}

TEST(Advise, RefusesRequestsBeyondTheModelsPositions) {
  EXPECT_TRUE(advice_for({.isl = 32000, .osl = 768}).ok());
  const auto longer = advice_for({.isl = 32000, .osl = 769});
  ASSERT_FALSE(longer.ok());
  EXPECT_THAT(longer.status().message(),
              HasSubstr("--isl 32000 and --osl 769: 32769 positions, expected at most the model's "
                        "32768"));
}

// Differences of two layouts; slots that follow from the ranks do not count.
int differences(const cost::Layout& a, const cost::Layout& b) {
  const bool same_ranks = a.ep == b.ep;
  return (same_ranks ? 0 : 1) + (a.expert_slices != b.expert_slices) + (a.stages != b.stages) +
         (a.context != b.context) + (a.attention_dp != b.attention_dp) +
         (same_ranks && a.num_slots != b.num_slots) + (a.format != b.format) +
         (a.drafts != b.drafts);
}

TEST(Neighbours, DifferInOneThing) {
  const Workload workload{.max_tpot = 0.02};
  const auto advice = advice_for(workload);
  ASSERT_TRUE(advice.ok() && advice->best);
  const std::vector<Neighbour> neighbours = neighbours_of(*advice, workload, 64);
  ASSERT_GE(neighbours.size(), 3u);
  for (const Neighbour& each : neighbours) {
    EXPECT_EQ(differences(each.candidate.layout, advice->best->layout), 1) << each.change;
    EXPECT_EQ(each.meets, meets(each.candidate, workload));
    // None is better: it would be the recommendation.
    if (each.meets) {
      EXPECT_FALSE(is_better(each.candidate, *advice->best, workload));
    }
    for (const Candidate& other : advice->all) {
      if (other.layout != each.candidate.layout || !meets(other, workload)) continue;
      EXPECT_FALSE(is_better(other, each.candidate, workload)) << each.change;
    }
  }
}

TEST(Drafts, AreVerifiedAsTokens) {
  EXPECT_DOUBLE_EQ(tokens_of_step(0, 0.9), 1.0);
  EXPECT_DOUBLE_EQ(tokens_of_step(3, 0.5), 1.0 + 0.5 + 0.25 + 0.125);
  EXPECT_DOUBLE_EQ(tokens_of_step(4, 1.0), 5.0);

  const model::ModelConfig config = mixture();
  const balance::ModelLoad load = load_of(config, 0.5);
  const auto with = [&](double acceptance, int concurrency) {
    const auto advice = advise(
        {.hardware = h100(),
         .config = config,
         .planned = load,
         .judged = load,
         .workload = {.concurrency = static_cast<double>(concurrency), .acceptance = acceptance},
         .choices = {.max_ranks = 1, .max_drafts = 5, .formats = {WeightFormat::kFp8}}});
    EXPECT_TRUE(advice.ok() && advice->best) << advice.status().message();
    return *advice->best;
  };
  // A single request's iteration reads weights: tokens more cost it little.
  const Candidate right = with(0.9, 1);
  EXPECT_EQ(right.layout.drafts, 5);
  EXPECT_GT(right.tokens_of_step, 4.0);
  // Drafts that are always wrong are of no use.
  EXPECT_EQ(with(0.0, 1).layout.drafts, 0);
  EXPECT_GT(right.tokens_per_user, 2.0 * with(0.0, 1).tokens_per_user);
}

TEST(Drafts, AreOnlyWeighedWhereAsked) {
  Choices choices{.max_ranks = 4};
  const size_t without = layouts_of(h100(), mixture(), choices).size();
  choices.max_drafts = 3;
  EXPECT_EQ(layouts_of(h100(), mixture(), choices).size(), 4 * without);  // 0, 1, 2, 3
}

TEST(ImbalanceByRanks, IsJudgedByTheOtherLoad) {
  const model::ModelConfig config = mixture();
  const balance::ModelLoad planned = load_of(config, 0.5);
  balance::ModelLoad judged = planned;
  for (auto& layer : judged.load) std::ranges::reverse(layer);
  const auto same = imbalance_by_ranks(planned, planned, {8}, 1);
  const auto other = imbalance_by_ranks(planned, judged, {8}, 1);
  ASSERT_TRUE(same.ok() && other.ok());
  EXPECT_LT(same->front().replicated, 0.01);
  EXPECT_GT(other->front().placed, 0.1);
  EXPECT_GT(other->front().eplb, same->front().eplb);
}

TEST(Memory, PartsAreTheSum) {
  cost::Layout layout = kEp8;
  layout.num_slots = 80;
  const RankMemory memory = memory_of(mixture(), layout);
  EXPECT_DOUBLE_EQ(memory.dense + memory.experts + memory.replicas + memory.vocabulary,
                   memory.weights);
  EXPECT_NEAR(memory.replicas / memory.experts, 2.0 / 8.0, 1e-12);
}

TEST(ConfigFiles, AreReadBack) {
  const model::ModelConfig config = mixture();
  const balance::ModelLoad load = load_of(config, 0.5);
  cost::Layout layout = kEp8;
  layout.num_slots = 72;
  layout.stages = 2;
  layout.context = 4;
  layout.drafts = 3;
  const Workload workload{.isl = 100, .osl = 200};
  const auto files = config_files(
      {.hardware = h100(), .config = config, .planned = load, .judged = load, .workload = workload},
      {.layout = layout, .batch = 24}, 2, "b.yaml");
  ASSERT_TRUE(files.ok()) << files.status().message();
  const auto read = parallel::parse_parallel_config(files->parallel, "parallel_config.yaml");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->sizes.tp, 8);
  EXPECT_EQ(read->sizes.pp, 2);
  EXPECT_EQ(read->sizes.cp, 4);
  EXPECT_EQ(read->sizes.moe_ep, 8);
  EXPECT_TRUE(read->enable_attention_dp);
  EXPECT_EQ(read->max_batch_size, 24);
  ASSERT_TRUE(read->speculative_config.has_value());
  EXPECT_EQ(read->speculative_config->max_draft_len, 3);
  EXPECT_EQ(read->moe_config.load_balancer_path, "b.yaml");
  const auto placement = recordings::parse_balancer_yaml(
      recordings::balancer_yaml_text(files->placement), "b.yaml",
      {.moe_layers = model::moe_layers(config), .num_experts = 64, .ep_size = 8});
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(placement->num_slots, 72);
  EXPECT_EQ(placement->layer_updates_per_iter, 2);
  EXPECT_EQ(*placement, files->placement);
}

}  // namespace
}  // namespace wideep::advise
