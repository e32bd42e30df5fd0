// SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <algorithm>
#include <filesystem>

#include "base/try.h"
#include "parallel/initial_placement.h"
#include "weights/checkpoint.h"

namespace wideep::tools {

bool has_file(const std::string& model_dir, const char* name) {
  std::error_code absent;
  return std::filesystem::exists(std::filesystem::path(model_dir) / name, absent);
}

bool has_weights(const std::string& model_dir) {
  return has_file(model_dir, "model.safetensors") ||
         has_file(model_dir, "model.safetensors.index.json");
}

namespace {

// In what forms the matrices are stored.
Status look_at_checkpoint(const std::string& model_dir, engine::ModelRun* run) {
  WIDEEP_TRY_ASSIGN(const weights::Checkpoint checkpoint, weights::Checkpoint::open(model_dir));
  run->stored_forms = model::model_forms(run->config, weights::WeightLoader(checkpoint, {}));
  run->format = run->stored_forms->experts.format;
  return {};
}

}  // namespace

Result<engine::ModelRun> model_run(const std::string& model_dir,
                                   std::optional<kernels::WeightFormat> format,
                                   const parallel::ParallelConfig& parallel) {
  engine::ModelRun run;
  WIDEEP_TRY_ASSIGN(run.config, model::read_model_config(model_dir));
  WIDEEP_TRY_ASSIGN(const balance::ModelPlacement placement,
                    parallel::initial_placement(parallel, {engine::moe_layers(run.config),
                                                           run.config.routing.num_experts}));
  run.num_ranks = parallel.sizes.tp;
  run.num_slices = parallel.sizes.moe_tp;
  run.num_groups = parallel.sizes.cp;
  run.num_slots = placement.num_slots;
  run.moe_max_num_tokens = parallel.moe_config.max_num_tokens;
  const int max_num_tokens =
      static_cast<int>(parallel.max_num_tokens.value_or(engine::kDefaultMaxNumTokens));
  run.turn_pages = engine::context_turn(parallel, max_num_tokens) / kernels::kPageTokens;
  run.max_num_tokens = engine::dispatched_tokens(parallel, max_num_tokens);
  const int max_batch_size = static_cast<int>(
      parallel.max_batch_size.value_or(std::min(engine::kDefaultMaxBatchSize, max_num_tokens)));
  WIDEEP_TRY_ASSIGN(run.joint,
                    engine::joint_layout(parallel, run.config, max_num_tokens, max_batch_size));
  WIDEEP_TRY_ASSIGN(run.pipeline,
                    engine::pipeline_layout(parallel, run.config, max_num_tokens, max_batch_size));
  run.format = format.value_or(run.config.stored_format);
  run.kv_cache_dtype = parallel.kv_cache_config.dtype;
  if (const auto tokens = parallel.kv_cache_config.max_tokens) run.kv_tokens_per_rank = *tokens;
  if (!format && has_weights(model_dir)) {
    WIDEEP_TRY(look_at_checkpoint(model_dir, &run));
  }
  WIDEEP_TRY_ASSIGN(const model::MoeOptions moe,
                    engine::moe_options(parallel, run.config, run.format));
  WIDEEP_TRY(engine::check_slices(parallel, run.config, moe));
  run.dispatch = moe.dispatch;
  run.combine = moe.combine;
  run.combine_rows = engine::combine_of(parallel);
  return run;
}

}  // namespace wideep::tools
