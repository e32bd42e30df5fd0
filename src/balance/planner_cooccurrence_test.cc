// SPDX-License-Identifier: Apache-2.0
#include "balance/planner_cooccurrence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

#include "balance/affinity.h"
#include "balance/assessment.h"
#include "balance/pair_counts.h"
#include "balance/token_spread.h"

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;

size_t at(int i) { return static_cast<size_t>(i); }

struct Layer {
  std::vector<double> load;
  std::vector<int64_t> pairs;
};

// Tokens choose two experts of one family and one of any; families are e % num_families.
Layer layer_of_families(int experts, int families, uint32_t seed) {
  std::mt19937 random(seed);
  Layer layer{std::vector<double>(at(experts)), std::vector<int64_t>(at(experts * experts))};
  for (int token = 0; token < 4000; ++token) {
    const int family = static_cast<int>(random()) & 0x7fffffff;
    const auto member = [&] {
      const int members = experts / families;
      const int skewed = static_cast<int>(std::min(random() % at(members), random() % at(members)));
      return skewed * families + family % families;
    };
    const int chosen[] = {member(), member(), static_cast<int>(random() % at(experts))};
    for (int a : chosen) {
      layer.load[at(a)] += 1;
      for (int b : chosen) {
        if (a != b) ++layer.pairs[at(a * experts + b)];
      }
    }
  }
  return layer;
}

LayerPlan plan_once(std::string_view name, const PlanShape& shape, const PlannerOptions& options,
                    const Layer& layer) {
  LayerPlan plan;
  const auto planner = make_planner(name, shape, options);
  EXPECT_TRUE(planner.ok()) << planner.status().message();
  planner.value()->plan({layer.load, layer.pairs}, &plan);
  return plan;
}

double imbalance(const LayerPlan& plan, const Layer& layer) {
  return imbalance_ratio(rank_loads(plan.placement, layer.load, plan.shares));
}

// Of the pairs, those that meet on a rank, term by term.
double meeting(const Placement& placement, const Layer& layer) {
  const Shares shares = equal_shares(placement);
  double within = 0;
  for (int a = 0; a < placement.num_slots(); ++a) {
    for (int b = 0; b < placement.num_slots(); ++b) {
      if (a == b || placement.rank_of_slot(a) != placement.rank_of_slot(b)) continue;
      const int pair =
          placement.slot_to_expert[at(a)] * placement.num_experts + placement.slot_to_expert[at(b)];
      within += shares[at(a)] * shares[at(b)] * static_cast<double>(layer.pairs[at(pair)]);
    }
  }
  return within /
         static_cast<double>(std::accumulate(layer.pairs.begin(), layer.pairs.end(), int64_t{0}));
}

constexpr PlanShape kShape{.num_experts = 32, .ep_size = 4, .num_slots = 40};

TEST(Affinity, KeepsItsSumsUpToDate) {
  const Layer layer = layer_of_families(32, 4, 1);
  Placement placement = plan_once("wideep", kShape, {}, layer).placement;
  Affinity affinity(kShape);
  affinity.reset({layer.load, layer.pairs}, placement);
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const int a = static_cast<int>(random() % 40), b = static_cast<int>(random() % 40);
    if (!affinity.may_exchange(a, b)) continue;
    const double expected = affinity.meeting() + affinity.gain(a, b);
    affinity.exchange(a, b);
    std::swap(placement.slot_to_expert[at(a)], placement.slot_to_expert[at(b)]);
    ASSERT_NEAR(affinity.meeting(), expected, 1e-12);
    ASSERT_NEAR(affinity.meeting(), meeting(placement, layer), 1e-12);
    ASSERT_FALSE(doubles_on_a_rank(placement));
  }
  const auto loads = rank_loads(placement, layer.load, equal_shares(placement));
  EXPECT_NEAR(affinity.max_rank_load(), imbalance_ratio(loads) + 1.0, 1e-12);
}

TEST(PlannerCooccurrence, PutsFamiliesTogetherWithinTheTolerance) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Layer layer = layer_of_families(32, 4, seed);
    const LayerPlan balanced = plan_once("wideep", kShape, {}, layer);
    for (const double tolerance : {0.0, 0.02, 0.2}) {
      const LayerPlan plan =
          plan_once("cooccurrence", kShape, {.cooccurrence_tolerance = tolerance}, layer);
      EXPECT_TRUE(check_placement(plan.placement).ok());
      EXPECT_FALSE(doubles_on_a_rank(plan.placement));
      EXPECT_EQ(plan.shares, equal_shares(plan.placement));
      EXPECT_LE(imbalance(plan, layer), std::max(tolerance, imbalance(balanced, layer)) + 1e-9);
      EXPECT_GE(meeting(plan.placement, layer), meeting(balanced.placement, layer));
      if (tolerance >= 0.02) {
        EXPECT_GT(meeting(plan.placement, layer), 1.3 * meeting(balanced.placement, layer));
      }
    }
  }
}

// Four families of equal load and no replicas: the best placement is known.
TEST(PlannerCooccurrence, FindsFamiliesThatFit) {
  Layer layer{std::vector<double>(16, 1.0), std::vector<int64_t>(256)};
  for (int a = 0; a < 16; ++a) {
    for (int b = 0; b < 16; ++b) layer.pairs[at(a * 16 + b)] = a != b && a % 4 == b % 4 ? 10 : 0;
  }
  const PlanShape shape{.num_experts = 16, .ep_size = 4, .num_slots = 16};
  const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
  EXPECT_DOUBLE_EQ(meeting(plan.placement, layer), 1.0);
}

TEST(PlannerCooccurrence, WeightedStaysWithinTheToleranceToo) {
  const Layer layer = layer_of_families(32, 4, 7);
  const PlannerOptions options{.split = Split::kWeighted};
  const LayerPlan plan = plan_once("cooccurrence", kShape, options, layer);
  EXPECT_LE(imbalance(plan, layer), 0.02 + 1e-9);
  EXPECT_FALSE(doubles_on_a_rank(plan.placement));
  EXPECT_GT(meeting(plan.placement, layer),
            meeting(plan_once("wideep", kShape, options, layer).placement, layer));
}

TEST(PlannerCooccurrence, GroupsStayOnTheirNode) {
  const Layer layer = layer_of_families(32, 4, 3);
  PlanShape shape = kShape;
  shape.num_nodes = 2;
  shape.num_groups = 4;
  const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
  std::vector<int> node_of_group(4, -1);
  for (int slot = 0; slot < 40; ++slot) {
    int& node = node_of_group[at(plan.placement.slot_to_expert[at(slot)] / 8)];
    if (node < 0) node = slot / 20;
    EXPECT_EQ(node, slot / 20);
  }
}

TEST(PlannerCooccurrence, DependsOnItsInputOnly) {
  const Layer layer = layer_of_families(32, 4, 4), other = layer_of_families(32, 8, 5);
  const auto planner = make_cooccurrence_planner(kShape, {});
  ASSERT_TRUE(planner.ok());
  LayerPlan first, between, again;
  planner.value()->plan({layer.load, layer.pairs}, &first);
  planner.value()->plan({other.load, other.pairs}, &between);
  planner.value()->plan({layer.load, layer.pairs}, &again);
  EXPECT_EQ(first.placement, again.placement);
  EXPECT_NE(first.placement, between.placement);
}

TEST(PlannerCooccurrence, ServesLayersWithoutTokens) {
  const Layer layer{std::vector<double>(32), std::vector<int64_t>(1024)};
  EXPECT_TRUE(check_placement(plan_once("cooccurrence", kShape, {}, layer).placement).ok());
}

TEST(PlannerCooccurrence, RefusesANegativeTolerance) {
  const auto planner = make_planner("cooccurrence", kShape, {.cooccurrence_tolerance = -1.0});
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("at least 0, found -1"));
  EXPECT_TRUE(needs_pair_counts("cooccurrence"));
  EXPECT_FALSE(needs_pair_counts("wideep"));
}

// TensorRT-LLM's rule: a rank is filled with what goes best with it until a part `alpha` of its
// slots or of the mean load is used; what is left goes to the lightest ranks, heaviest first.
class AlphaGreedy {
 public:
  AlphaGreedy(const LayerPlan& replicated, const Layer& layer)
      : layer_(layer),
        slots_(replicated.placement.slot_to_expert),
        ranks_(at(replicated.placement.ep_size)),
        load_(ranks_.size()),
        per_rank_(replicated.placement.slots_per_rank()) {
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      tokens_.push_back(layer.load[at(slots_[slot])] * replicated.shares[slot]);
      order_.push_back(slot);
    }
    std::ranges::sort(order_, [&](size_t a, size_t b) {
      return tokens_[a] != tokens_[b] ? tokens_[a] > tokens_[b] : a < b;
    });
  }

  LayerPlan plan(int num_experts) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) gather(rank);
    while (!order_.empty()) put(0, lightest());
    LayerPlan plan;
    plan.placement = {.num_experts = num_experts,
                      .ep_size = static_cast<int>(ranks_.size()),
                      .slot_to_expert = {}};
    for (const auto& rank : ranks_) {
      for (size_t slot : rank) plan.placement.slot_to_expert.push_back(slots_[slot]);
    }
    plan.shares = equal_shares(plan.placement);
    return plan;
  }

 private:
  static constexpr double kAlpha = 0.8;

  void gather(size_t rank) {
    const double mean =
        std::accumulate(tokens_.begin(), tokens_.end(), 0.0) / static_cast<double>(ranks_.size());
    put(0, rank);
    while (!order_.empty() && static_cast<double>(ranks_[rank].size()) <= kAlpha * per_rank_ &&
           load_[rank] <= kAlpha * mean) {
      const auto best =
          std::ranges::max_element(order_, {}, [&](size_t slot) { return pairs_with(rank, slot); });
      put(static_cast<size_t>(best - order_.begin()), rank);
    }
  }

  double pairs_with(size_t rank, size_t slot) const {
    double sum = 0;
    const size_t experts = layer_.load.size();
    for (size_t other : ranks_[rank]) {
      const size_t a = at(slots_[slot]), b = at(slots_[other]);
      sum += a == b ? -1e9 : static_cast<double>(layer_.pairs[a * experts + b]);
    }
    return sum;
  }

  size_t lightest() const {
    size_t best = ranks_.size();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (static_cast<int>(ranks_[rank].size()) == per_rank_) continue;
      if (best == ranks_.size() || load_[rank] < load_[best]) best = rank;
    }
    return best;
  }

  void put(size_t position, size_t rank) {
    ranks_[rank].push_back(order_[position]);
    load_[rank] += tokens_[order_[position]];
    order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(position));
  }

  const Layer& layer_;
  std::vector<int32_t> slots_;  // experts of the replicas
  std::vector<std::vector<size_t>> ranks_;
  std::vector<double> load_;
  int per_rank_;
  std::vector<double> tokens_;
  std::vector<size_t> order_;  // not placed yet, heaviest first
};

struct RecordedCase {
  const char* file;
  TraceShape shape;
  int ep_size;
  int num_slots;
};

class PlannerCooccurrenceOnTraces : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(PlannerCooccurrenceOnTraces, IsNeverWorseThanTheAlphaGreedy) {
  const RecordedCase& c = GetParam();
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded traces to read";
  const std::string path = std::string(data) + "/" + c.file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist";
  const TracePart trace{.path = path, .shape = c.shape, .begin = 0, .end = 6000};
  const Result<PairCounts> pairs = count_pairs(trace);
  const Result<TraceStatistics> statistics = read_trace(path, c.shape);
  ASSERT_TRUE(pairs.ok() && statistics.ok());
  const PlanShape shape{
      .num_experts = c.shape.num_experts, .ep_size = c.ep_size, .num_slots = c.num_slots};
  for (int i = 0; i < 4; ++i) {
    const auto matrix = pairs->matrix(i);
    Layer layer{{}, {matrix.begin(), matrix.end()}};
    for (int e = 0; e < c.shape.num_experts; ++e) {
      const auto row = pairs->row(i, e);
      layer.load.push_back(
          static_cast<double>(std::accumulate(row.begin(), row.end(), int64_t{0})));
    }
    const LayerPlan ours = plan_once("cooccurrence", shape, {}, layer);
    const LayerPlan greedy =
        AlphaGreedy(plan_once("trt", shape, {}, layer), layer).plan(shape.num_experts);
    ASSERT_TRUE(check_placement(greedy.placement).ok());
    EXPECT_LE(imbalance(ours, layer), std::max(imbalance(greedy, layer), 0.02 + 1e-9));
    LayerSpread our_spread(ours.placement, ours.shares);
    LayerSpread greedy_spread(greedy.placement, greedy.shares);
    ASSERT_TRUE(visit_trace(path, c.shape, [&](const TokenChoice& choice) {
                  if (choice.layer_idx != i || !trace.contains(choice.token)) return;
                  our_spread.add(choice.token, choice.experts);
                  greedy_spread.add(choice.token, choice.experts);
                }).ok());
    EXPECT_LT(our_spread.spread().ranks_by_shares, greedy_spread.spread().ranks_by_shares);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, PlannerCooccurrenceOnTraces,
    ::testing::Values(
        RecordedCase{"routing_trace_deepseek_v2lite/law.ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1},
                     8,
                     72},
        RecordedCase{"routing_trace_deepseek_v2lite/law.ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1},
                     8,
                     64},
        RecordedCase{"routing_trace_gptoss20b/trace_ids.u8",
                     {.num_layers = 24, .top_k = 4, .num_experts = 32},
                     4,
                     40}));

}  // namespace
}  // namespace wideep::balance
