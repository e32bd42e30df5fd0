// SPDX-License-Identifier: Apache-2.0
//
// The router follows a recorded load by its biases (loaded_router.h); random weights alone have no
// load to follow. All prompts come in one iteration, so all requests generate in the same ones, and
// only those count. The first MoE layer's time has the embedding and the dense layer in it:
// attention is measured on the others and scaled to all layers.
#include "measure/predict/engine_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "cost/expert_load.h"
#include "cost/step_cost.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/model/bench_ranks.h"
#include "measure/predict/loaded_router.h"
#include "model/model_division.h"
#include "wideep/balancer.h"

namespace wideep::measure {
namespace {

constexpr const char* kModel = R"({"model_type": "deepseek_v3", "vocab_size": 4096,
    "hidden_size": 512, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 8, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64, "intermediate_size": 1024,
    "moe_intermediate_size": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "moe_layer_freq": 1,
    "hidden_act": "silu"})";

constexpr kernels::WeightFormat kFormat = kernels::WeightFormat::kBf16;
constexpr int kPrompt = 24;     // tokens of a request before its first measured one
constexpr int kGenerated = 14;  // of a request
constexpr int kPages = 64;      // of a rank's cache

using Placements = std::map<int, balance::Placement>;

Result<Placements> plan(const balance::ModelLoad& load, const EngineScaleOptions& options,
                        int num_slots) {
  const balance::PlanShape shape{
      .num_experts = load.num_experts, .ep_size = options.num_ranks, .num_slots = num_slots};
  WIDEEP_TRY_ASSIGN(const auto planner,
                    balance::make_planner("wideep", shape, {.split = balance::Split::kWeighted}));
  Placements placements;
  balance::LayerPlan layer;
  WIDEEP_TRY_ASSIGN(const balance::Placement in_order,
                    balance::default_placement(shape.num_experts, shape.ep_size, num_slots));
  for (size_t i = 0; i < load.layers.size(); ++i) {
    if (options.planned) planner->plan(load.load[i], &layer);
    placements[load.layers[i]] = options.planned ? layer.placement : in_order;
  }
  return placements;
}

Result<parallel::ParallelConfig> parallel_of(const Placements& placements, int num_ranks,
                                             int num_slots) {
  WIDEEP_TRY_ASSIGN(parallel::ParallelConfig parallel,
                    parallel::parallel_config_for_ranks(num_ranks));
  std::map<int, std::vector<int64_t>> assignments;
  for (const auto& [layer, placement] : placements) {
    assignments[layer].assign(placement.slot_to_expert.begin(), placement.slot_to_expert.end());
  }
  parallel.moe_config.load_balancer = {.num_slots = num_slots,
                                       .initial_global_assignments = std::move(assignments)};
  return parallel;
}

// Σ over layers of the busiest rank.
double busiest_experts_of(const std::vector<engine::IterationRecord>& ranks) {
  int64_t sum = 0;
  for (size_t layer = 0; layer < ranks[0].layers.size(); ++layer) {
    int64_t max = 0;
    for (const auto& rank : ranks) max = std::max(max, rank.layers[layer].experts_cpu_ns);
    sum += max;
  }
  return 1e-9 * static_cast<double>(sum);
}

// max / mean − 1 of the rows that ranks receive, the mean over layers.
double imbalance_of_rows(const std::vector<engine::IterationRecord>& ranks) {
  double sum = 0.0;
  const size_t layers = ranks[0].layers.size();
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<int64_t> rows(ranks.size());
    int64_t all = 0;
    for (const auto& rank : ranks) {
      for (size_t to = 0; to < rows.size(); ++to) {
        rows[to] += rank.layers[layer].sent[to];
        all += rank.layers[layer].sent[to];
      }
    }
    const auto max = static_cast<double>(std::ranges::max(rows));
    sum += max * static_cast<double>(rows.size()) / static_cast<double>(all) - 1.0;
  }
  return sum / static_cast<double>(layers);
}

// Collects the iterations in which every request gets one token.
class ScaleReader {
 public:
  ScaleReader(const model::ModelConfig& config, int num_requests)
      : config_(config), num_requests_(num_requests) {}

  void read(const std::vector<run::Iteration>& iterations) {
    for (size_t i = 1; i < iterations.size(); ++i) {
      int64_t generated = 0, prompt = 0;
      for (const engine::IterationRecord& rank : iterations[i].ranks) {
        generated += rank.generated_tokens;
        prompt += rank.prompt_tokens;
      }
      if (generated != num_requests_ || prompt != 0) continue;
      add(iterations[i].ranks);
      seconds_.push_back(seconds_between(iterations[i - 1], iterations[i]));
    }
  }

  // REQUIRES: there was an iteration.
  EngineCost cost(const balance::ModelLoad& load) const {
    EngineCost cost{.mean = {.attention = median_of(&RankParts::attention),
                             .dense = median_of(&RankParts::dense),
                             .experts = median_of(&RankParts::experts),
                             .exchange = median_of(&RankParts::exchange),
                             .agree = median_of(&RankParts::agree)},
                    .busiest = median(busiest_),
                    .busiest_experts = median(busiest_experts_),
                    .seconds = median(seconds_),
                    .iterations = num_iterations()};
    for (const double each : imbalances_) cost.imbalance += each / num_iterations();
    for (size_t i = 0; i < load.load.size(); ++i) {
      cost.distance += load_distance(counts_[i], load.load[i]) / std::ssize(load.load);
    }
    return cost;
  }

  int num_iterations() const { return static_cast<int>(means_.size()); }

 private:
  void add(const std::vector<engine::IterationRecord>& ranks) {
    RankParts sum;
    double max = 0.0;
    for (const engine::IterationRecord& rank : ranks) {
      const RankParts parts = parts_of_rank(rank, config_);
      sum += parts;
      max = std::max(max, parts.all());
      counts_.resize(rank.layers.size());
      for (size_t layer = 0; layer < rank.layers.size(); ++layer) {
        const std::vector<int32_t>& counts = rank.layers[layer].counts;
        counts_[layer].resize(counts.size());
        for (size_t e = 0; e < counts.size(); ++e) counts_[layer][e] += counts[e];
      }
    }
    means_.push_back(sum *= 1.0 / static_cast<double>(ranks.size()));
    busiest_.push_back(max);
    busiest_experts_.push_back(busiest_experts_of(ranks));
    imbalances_.push_back(imbalance_of_rows(ranks));
  }

  double median_of(double RankParts::* part) const {
    std::vector<double> values;
    for (const RankParts& each : means_) values.push_back(each.*part);
    return median(std::move(values));
  }

  const model::ModelConfig& config_;
  int64_t num_requests_;
  std::vector<RankParts> means_;
  std::vector<double> busiest_, busiest_experts_, imbalances_, seconds_;
  std::vector<std::vector<double>> counts_;  // [layer][expert] tokens
};

}  // namespace

RankParts& RankParts::operator+=(const RankParts& other) {
  attention += other.attention;
  dense += other.dense;
  experts += other.experts;
  exchange += other.exchange;
  agree += other.agree;
  return *this;
}

RankParts& RankParts::operator*=(double factor) {
  for (double* part : {&attention, &dense, &experts, &exchange, &agree}) *part *= factor;
  return *this;
}

model::ModelConfig scaled_model() {
  auto config = model::parse_model_config(kModel, "the scaled model");
  WIDEEP_CHECK(config.ok());
  return std::move(config).value();
}

balance::ModelLoad scaled_load(const model::ModelConfig& config, const balance::ModelLoad& load) {
  WIDEEP_CHECK_EQ(load.num_experts, config.routing.num_experts);
  std::vector<const std::vector<double>*> used;
  for (const std::vector<double>& layer : load.load) {
    if (std::ranges::any_of(layer, [](double tokens) { return tokens > 0.0; })) {
      used.push_back(&layer);
    }
  }
  WIDEEP_CHECK(!used.empty());
  balance::ModelLoad scaled{.num_experts = load.num_experts, .layers = model::moe_layers(config)};
  for (size_t i = 0; i < scaled.layers.size(); ++i) {
    scaled.load.push_back(*used[i * used.size() / scaled.layers.size()]);
  }
  return scaled;
}

RankParts parts_of_rank(const engine::IterationRecord& rank, const model::ModelConfig& config) {
  int64_t other = rank.tail_cpu_ns, experts = 0, exchange = 0, mixers = 0;
  for (size_t layer = 0; layer < rank.layers.size(); ++layer) {
    const engine::LayerRecord& each = rank.layers[layer];
    other += each.other_cpu_ns - each.exchange_cpu_ns;
    experts += each.experts_cpu_ns;
    exchange += each.exchange_cpu_ns;
    // In the first one's time are the embedding and the dense layer.
    if (layer > 0) mixers += each.other_cpu_ns - each.exchange_cpu_ns - each.shared_cpu_ns;
  }
  const auto timed = static_cast<double>(rank.layers.size() - 1);
  const double attention = 1e-9 * static_cast<double>(mixers) / timed * config.num_layers;
  return {.attention = attention,
          .dense = 1e-9 * static_cast<double>(other) - attention,
          .experts = 1e-9 * static_cast<double>(experts),
          .exchange = 1e-9 * static_cast<double>(exchange),
          .agree = 1e-9 * static_cast<double>(rank.agree_cpu_ns)};
}

Result<EngineCost> run_engine_scale(const model::ModelConfig& config,
                                    const balance::ModelLoad& load,
                                    const EngineScaleOptions& options, run::RunView& view) {
  const int num_slots = slots_for(load.num_experts, options.spare_slots, options.num_ranks);
  WIDEEP_TRY_ASSIGN(const Placements placements, plan(load, options, num_slots));
  // All prompts come in one iteration, so that all requests generate in the same ones.
  BenchRanksOptions bench{.config = config,
                          .precision = kFormat,
                          .limits = {.max_batch_size = options.batch,
                                     .max_num_tokens = options.batch * kPrompt,
                                     .max_pages = kPages},
                          .threads_per_rank = 1};
  WIDEEP_TRY_ASSIGN(bench.parallel, parallel_of(placements, options.num_ranks, num_slots));
  // Buffers for generated tokens; prompts go in chunks.
  bench.parallel.moe_config.max_num_tokens = int64_t{options.batch} * options.num_ranks;
  WIDEEP_TRY_ASSIGN(
      const auto ranks,
      BenchRanks::start(bench, std::make_unique<LoadedTensors>(1, config.routing, load), view));
  const int num_requests = options.batch * options.num_ranks;
  ScaleReader reader(config, num_requests);
  for (int repetition = -1; repetition < options.repetitions; ++repetition) {
    WIDEEP_TRY_ASSIGN(
        const auto iterations,
        ranks->run(random_requests(num_requests, kPrompt, kGenerated, config.vocab_size,
                                   static_cast<uint32_t>(repetition + 2))));
    if (repetition >= 0) reader.read(iterations);
  }
  WIDEEP_TRY(ranks->finish());
  if (reader.num_iterations() == 0) {
    return failed(fmt::format("EP {}: no iteration had a token of each of {} requests",
                              options.num_ranks, num_requests));
  }
  EngineCost cost = reader.cost(load);
  cost.num_ranks = options.num_ranks;
  cost.num_slots = num_slots;
  return cost;
}

Result<PredictedCompute> predict_compute(const cost::Hardware& hardware,
                                         const model::ModelConfig& config,
                                         const balance::ModelLoad& load,
                                         const EngineScaleOptions& options) {
  const int num_slots = slots_for(load.num_experts, options.spare_slots, options.num_ranks);
  WIDEEP_TRY_ASSIGN(const Placements placements, plan(load, options, num_slots));
  std::vector<cost::PlacedLayer> placed;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    placed.push_back(
        cost::placed_as(placements.at(load.layers[i]), load.load[i], config.routing.top_k));
  }
  const cost::StepCost cost(hardware, config,
                            {.ep = options.num_ranks, .num_slots = num_slots, .format = kFormat},
                            std::move(placed));
  const model::StepShape shape = model::decode_step(options.batch, kPrompt + kGenerated / 2, 0);
  const cost::StepTime mean = cost.rank_time(shape, cost::StepCost::Rank::kMean);
  return PredictedCompute{
      .mean = {.attention = mean.attention, .dense = mean.dense, .experts = mean.experts},
      .busiest_experts = cost.rank_time(shape, cost::StepCost::Rank::kBusiest).experts};
}

}  // namespace wideep::measure
