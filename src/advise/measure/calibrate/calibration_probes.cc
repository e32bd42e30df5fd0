// SPDX-License-Identifier: Apache-2.0
//
// Constants can be told apart only where different parts rule: so one model is wide with its
// weights in memory, one fits a cache in part, one has many small matrices. All have five layers,
// of which calibrate() reads the middle three. Two shapes warm up. Then shapes give iterations of
// prompts and, with a growing cache, of single tokens. Records move into the run; of an iteration
// only its end stays behind, from which the time of the next one counts.
#include "measure/calibrate/calibration_probes.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/machine.h"
#include "base/try.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/model/bench_ranks.h"
#include "weights/random_tensors.h"

namespace wideep::measure {
namespace {

// Wide, its weights in memory.
constexpr const char* kWide = R"({"model_type": "qwen3_moe", "vocab_size": 16384,
    "hidden_size": 1024, "num_hidden_layers": 5, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048,
    "moe_intermediate_size": 512, "num_experts": 32, "num_experts_per_tok": 4,
    "norm_topk_prob": true, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
    "rope_theta": 1e6, "tie_word_embeddings": false, "decoder_sparse_step": 1,
    "mlp_only_layers": []})";

// Experts that are as wide as a row, few enough to stay in a large cache in part.
constexpr const char* kSquare = R"({"model_type": "qwen3_moe", "vocab_size": 8192,
    "hidden_size": 512, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024,
    "moe_intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 4,
    "norm_topk_prob": true, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
    "rope_theta": 1e6, "tie_word_embeddings": false, "decoder_sparse_step": 1,
    "mlp_only_layers": []})";

// Latent attention, many matrices, a shared expert.
constexpr const char* kLatent = R"({"model_type": "deepseek_v3", "vocab_size": 8192,
    "hidden_size": 384, "num_hidden_layers": 5, "num_attention_heads": 6,
    "num_key_value_heads": 6, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64, "intermediate_size": 768,
    "moe_intermediate_size": 128, "n_routed_experts": 32, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
    "norm_topk_prob": true, "routed_scaling_factor": 1.0, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "moe_layer_freq": 1,
    "hidden_act": "silu"})";

constexpr ProbeShape kAllShapes[] = {{16, 8, 1},  {16, 8, 2},  {16, 8, 4},  {16, 8, 8}, {8, 8, 16},
                                     {8, 5, 32},  {600, 5, 1}, {600, 4, 4}, {32, 1, 1}, {64, 1, 1},
                                     {128, 1, 1}, {200, 1, 1}, {300, 1, 1}, {512, 1, 1}};
constexpr ProbeShape kFewShapes[] = {{8, 12, 1},  {8, 12, 4},  {8, 12, 12},
                                     {128, 1, 1}, {400, 1, 1}, {400, 1, 1}};

class Reader {
 public:
  Reader(const ProbeShape& shape, int num_ranks, ProbeRun* run)
      : shape_(shape), num_ranks_(num_ranks), run_(*run) {}

  void read(std::vector<run::Iteration> iterations) {
    double cached = 0.0;
    for (size_t i = 0; i < iterations.size(); ++i) {
      int64_t prompts = 0, tokens = 0;
      for (const engine::IterationRecord& rank : iterations[i].ranks) {
        prompts += rank.prompt_tokens;
        tokens += rank.prompt_tokens + rank.generated_tokens;
      }
      const double own = static_cast<double>(tokens) / num_ranks_;
      const double seconds =
          i == 0 ? seconds_alone(iterations[0]) : seconds_between(iterations[i - 1], iterations[i]);
      run_.iterations.push_back({.shape = shape_,
                                 .is_prompt = prompts > 0,
                                 .tokens = own,
                                 .cached = cached,
                                 .seconds = seconds,
                                 .ranks = std::move(iterations[i].ranks)});
      iterations[i].ranks.resize(1);
      iterations[i].ranks[0].end_ns = end_of(run_.iterations.back().ranks);
      cached += own;
    }
  }

 private:
  ProbeShape shape_;
  int num_ranks_;
  ProbeRun& run_;
};

}  // namespace

std::vector<std::shared_ptr<const model::ModelConfig>> probe_models() {
  std::vector<std::shared_ptr<const model::ModelConfig>> models;
  for (const char* text : {kWide, kSquare, kLatent}) {
    auto config = model::parse_model_config(text, "calibration");
    WIDEEP_CHECK(config.ok());
    models.push_back(std::make_shared<const model::ModelConfig>(std::move(config).value()));
  }
  return models;
}

Result<ProbeRun> run_probe(std::shared_ptr<const model::ModelConfig> config,
                           kernels::WeightFormat format, int num_ranks, int threads,
                           run::RunView& view) {
  BenchRanksOptions options{
      .config = *config,
      .precision = format,
      .limits = {.max_batch_size = 64, .max_num_tokens = kMaxProbedTokens, .max_pages = 512},
      .threads_per_rank = threads};
  WIDEEP_TRY_ASSIGN(options.parallel, parallel::parallel_config_for_ranks(num_ranks));
  WIDEEP_TRY_ASSIGN(const auto ranks,
                    BenchRanks::start(options, std::make_unique<weights::RandomTensors>(1), view));
  ProbeRun probe{.config = config, .format = format, .threads = threads};
  const bool takes_turns = num_ranks * threads > base::read_machine().usable_cores();
  const std::span<const ProbeShape> shapes =
      takes_turns ? std::span<const ProbeShape>(kFewShapes) : kAllShapes;
  uint32_t seed = 0;
  const auto run = [&](const ProbeShape& shape) {
    return ranks->run(random_requests(shape.requests * num_ranks, shape.prompt, shape.tokens,
                                      config->vocab_size, ++seed));
  };
  for (const ProbeShape& warm_up : {shapes.front(), shapes.back()}) {
    WIDEEP_TRY_ASSIGN(const auto unused, run(warm_up));
  }
  for (const ProbeShape& shape : shapes) {
    WIDEEP_TRY_ASSIGN(auto iterations, run(shape));
    Reader(shape, num_ranks, &probe).read(std::move(iterations));
  }
  WIDEEP_TRY(ranks->finish());
  return probe;
}

}  // namespace wideep::measure
