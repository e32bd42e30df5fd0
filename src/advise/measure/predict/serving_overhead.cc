// SPDX-License-Identifier: Apache-2.0
#include "measure/predict/serving_overhead.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/predict/served_model.h"
#include "measure/serving/serving_run.h"

namespace wideep::measure {
namespace {

constexpr int kMany = 16;    // requests at the same time, on all ranks
constexpr int kTokens = 96;  // of an answer
constexpr int kAlone = 24;   // requests, one after the other
constexpr int kBursts = 4;
constexpr const char* kConfig = R"({"model_type": "qwen3_moe", "vocab_size": 8192,
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1024,
    "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4,
    "norm_topk_prob": true, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 1e6, "tie_word_embeddings": false, "decoder_sparse_step": 1,
    "mlp_only_layers": []})";

// Prompts of one token, so many requests at the same time, `turns` times.
Result<ServingReport> serve(const ServedModel& served, int count, int turns, int tokens) {
  ServingReport all;
  std::vector<double> ttft, tpot;
  for (int turn = 0; turn < turns; ++turn) {
    ServingOptions options{.address = served.address(),
                           .model = ServedModel::kName,
                           .requests = random_dataset({.count = count,
                                                       .input = UniformLength{1, 1},
                                                       .output = UniformLength{tokens, tokens},
                                                       .min_id = 100,
                                                       .num_ids = 1000,
                                                       .seed = static_cast<uint64_t>(turn)}),
                           .max_concurrency = count};
    WIDEEP_TRY_ASSIGN(const auto report, run_serving_bench(options, {}));
    if (!report.failures.empty()) return failed(report.failures.front());
    ttft.push_back(report.ttft.median);
    tpot.push_back(report.tpot.median);
  }
  all.ttft = base::percentiles_of(std::move(ttft));
  all.tpot = base::percentiles_of(std::move(tpot));
  return all;
}

}  // namespace

Result<OverheadProbe> OverheadProbe::make(const std::string& program, int ranks,
                                          const std::string& tokenizer) {
  WIDEEP_TRY_ASSIGN(const auto config, model::parse_model_config(kConfig, "probe"));
  WIDEEP_TRY_ASSIGN(auto parallel, parallel::parallel_config_for_ranks(ranks));
  auto directory = std::make_shared<base::ScratchDirectory>();
  WIDEEP_TRY(write_model_directory(directory->path(), kConfig, tokenizer));
  OverheadProbe probe(program, ranks,
                      {.name = fmt::format("probe EP {}", ranks),
                       .config = config,
                       .parallel = std::move(parallel),
                       .batches = {1, kMany / ranks}});
  probe.directory_ = std::move(directory);
  return probe;
}

Status OverheadProbe::measure(run::RunView& view) {
  WIDEEP_TRY(engine_.measure(kBursts, view));
  WIDEEP_TRY_ASSIGN(const auto served,
                    ServedModel::start(program_, {"--model", directory_->path(), "--random-weights",
                                                  "--ranks", std::to_string(ranks_)}));
  WIDEEP_TRY(serve(*served, kMany, 1, kTokens).status());  // warms up
  WIDEEP_TRY_ASSIGN(const auto alone, serve(*served, 1, kAlone, 8));
  WIDEEP_TRY_ASSIGN(const auto few, serve(*served, ranks_, kBursts, kTokens));
  WIDEEP_TRY_ASSIGN(const auto many, serve(*served, kMany, kBursts, kTokens));
  requests_.push_back(alone.ttft.median - alone.tpot.median);
  few_.push_back(few.tpot.median);
  many_.push_back(many.tpot.median);
  return {};
}

advise::ServingOverhead OverheadProbe::result(const cost::Hardware& hardware) const {
  const std::vector<CheckedCell> cells = engine_.judge(hardware);
  const double few = median(few_) - cells[0].measured;
  const double many = median(many_) - cells[1].measured;
  const double token = std::max(0.0, (many - few) / (kMany - ranks_));
  return {.request = std::max(0.0, median(requests_)),
          .iteration = std::max(0.0, few - token * ranks_),
          .token = token};
}

}  // namespace wideep::measure
