// SPDX-License-Identifier: Apache-2.0
//
// Planner cooccurrence beside TensorRT-LLM's rule, on recorded traces.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "placement/token_spread.h"
#include "recordings/pair_counts.h"
#include "recordings/token_trace.h"
#include "wideep/balancer.h"

namespace wideep::recordings {
namespace {

using balance::check_placement;
using balance::equal_shares;
using balance::imbalance_ratio;
using balance::LayerPlan;
using balance::LayerSpread;
using balance::make_planner;
using balance::PlanShape;
using balance::rank_loads;

size_t at(int i) { return static_cast<size_t>(i); }

struct Layer {
  std::vector<double> load;
  std::vector<int64_t> pairs;
};

LayerPlan plan_once(std::string_view name, const PlanShape& shape, const Layer& layer) {
  LayerPlan plan;
  make_planner(name, shape, {}).value()->plan({layer.load, layer.pairs}, &plan);
  return plan;
}

double imbalance(const LayerPlan& plan, const Layer& layer) {
  return imbalance_ratio(rank_loads(plan.placement, layer.load, plan.shares));
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
  int num_nodes = 2;
};

// The first layers of a recorded trace, of its first tokens.
class RecordedLayers {
 public:
  static constexpr int kLayers = 4;

  explicit RecordedLayers(const RecordedCase& c) : case_(c) {
    const char* data = std::getenv("WIDEEP_DATA_DIR");
    if (data != nullptr) trace_.path = std::string(data) + "/" + c.file;
    trace_.shape = c.shape;
    trace_.end = 6000;
  }
  bool exists() const { return !trace_.path.empty() && std::filesystem::exists(trace_.path); }

  Layer layer(int index) {
    if (!pairs_) pairs_ = count_pairs(trace_).value();
    const auto matrix = pairs_->matrix(index);
    Layer layer{{}, {matrix.begin(), matrix.end()}};
    for (int e = 0; e < case_.shape.num_experts; ++e) {
      const auto row = pairs_->row(index, e);
      layer.load.push_back(
          static_cast<double>(std::accumulate(row.begin(), row.end(), int64_t{0})));
    }
    return layer;
  }

  // Of the tokens that the layers are of, or of as many after them.
  balance::Spread spread(int index, const LayerPlan& plan, int num_nodes, bool later) const {
    LayerSpread spread(plan.placement, plan.shares, num_nodes);
    TracePart part = trace_;
    if (later) part = {trace_.path, trace_.shape, trace_.end, 2 * trace_.end};
    const auto visited = visit_trace(trace_.path, trace_.shape, [&](const TokenChoice& choice) {
      if (choice.layer_idx == index && part.contains(choice.token)) {
        spread.add(choice.token, choice.experts);
      }
    });
    EXPECT_TRUE(visited.ok());
    return spread.spread();
  }

 private:
  RecordedCase case_;
  TracePart trace_;
  std::optional<PairCounts> pairs_;
};

class PlannerCooccurrenceOnTraces : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(PlannerCooccurrenceOnTraces, IsNeverWorseThanTheAlphaGreedy) {
  const RecordedCase& c = GetParam();
  RecordedLayers recorded(c);
  if (!recorded.exists()) GTEST_SKIP() << "no " << c.file << " in WIDEEP_DATA_DIR";
  const PlanShape shape{
      .num_experts = c.shape.num_experts, .ep_size = c.ep_size, .num_slots = c.num_slots};
  for (int i = 0; i < RecordedLayers::kLayers; ++i) {
    const Layer layer = recorded.layer(i);
    const LayerPlan ours = plan_once("cooccurrence", shape, layer);
    const LayerPlan greedy =
        AlphaGreedy(plan_once("trt", shape, layer), layer).plan(shape.num_experts);
    ASSERT_TRUE(check_placement(greedy.placement).ok());
    EXPECT_LE(imbalance(ours, layer), std::max(imbalance(greedy, layer), 0.02 + 1e-9));
    EXPECT_LT(recorded.spread(i, ours, 1, false).ranks_by_shares,
              recorded.spread(i, greedy, 1, false).ranks_by_shares);
  }
}

TEST_P(PlannerCooccurrenceOnTraces, CrossesToFewerNodesWhereItKnowsThem) {
  const RecordedCase& c = GetParam();
  RecordedLayers recorded(c);
  if (!recorded.exists()) GTEST_SKIP() << "no " << c.file << " in WIDEEP_DATA_DIR";
  const PlanShape flat{
      .num_experts = c.shape.num_experts, .ep_size = c.ep_size, .num_slots = c.num_slots};
  PlanShape shape = flat;
  shape.num_nodes = c.num_nodes;
  for (const bool later : {false, true}) {
    double with_nodes = 0, by_ranks = 0, balanced = 0;
    for (int i = 0; i < RecordedLayers::kLayers; ++i) {
      const Layer layer = recorded.layer(i);
      const auto crossings = [&](const char* planner, const PlanShape& planned) {
        const LayerPlan plan = plan_once(planner, planned, layer);
        if (planned.num_nodes > 1) {
          EXPECT_LE(imbalance(plan, layer), 0.02 + 1e-9);
        }
        return recorded.spread(i, plan, c.num_nodes, later).crossings / RecordedLayers::kLayers;
      };
      with_nodes += crossings("cooccurrence", shape);
      by_ranks += crossings("cooccurrence", flat);
      balanced += crossings("wideep", flat);
    }
    std::printf(
        "  %s, %d ranks, %d slots, %d nodes%s: other nodes of a token %.3f, by ranks alone "
        "%.3f, by load alone %.3f\n",
        c.file, c.ep_size, c.num_slots, c.num_nodes, later ? ", later tokens" : "", with_nodes,
        by_ranks, balanced);
    EXPECT_LT(with_nodes, by_ranks);
    EXPECT_LT(with_nodes, 0.95 * balanced);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, PlannerCooccurrenceOnTraces,
    ::testing::Values(
        RecordedCase{"routing_trace_deepseek_v2lite/law.ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1},
                     8,
                     72},
        RecordedCase{"routing_trace_deepseek_v2lite/summary.ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1},
                     16,
                     80,
                     4},
        RecordedCase{"routing_trace_deepseek_v2lite/law.ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1},
                     8,
                     64},
        RecordedCase{"routing_trace_gptoss20b/trace_ids.u8",
                     {.num_layers = 24, .top_k = 4, .num_experts = 32},
                     4,
                     40},
        RecordedCase{"routing_trace_gptoss20b/trace_ids.u8",
                     {.num_layers = 24, .top_k = 4, .num_experts = 32},
                     8,
                     40,
                     4}));

}  // namespace
}  // namespace wideep::recordings
