// SPDX-License-Identifier: Apache-2.0
#include "model/model_division.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/packed_matrix.h"

namespace wideep::model {

using kernels::PackedShape;

std::vector<int> moe_layers(const ModelConfig& config) {
  std::vector<int> layers;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    if (config.is_moe(layer)) layers.push_back(layer);
  }
  return layers;
}

parallel::LayerRange stage_layers(const ModelConfig& config, int stage, int num_stages) {
  parallel::LayerRange layers = parallel::layers_of_stage(stage, num_stages, config.num_layers);
  if (stage + 1 == num_stages) layers.last = config.num_all_layers();
  return layers;
}

Status check_slices(const parallel::ParallelConfig& settings, const ModelConfig& config,
                    const MoeOptions& moe) {
  const int slices = settings.sizes.moe_tp;
  if (slices == 1 || !config.has_experts()) return {};
  // Slices are cut between panels, in both products: gate and up have moe_intermediate_size
  // columns, down has expert_hidden_size().
  const int width = std::min(config.moe_intermediate_size, config.expert_hidden_size());
  const int max = PackedShape{.n = width}.num_panels();
  if (slices > max) {
    return invalid_input(fmt::format(
        "{}: moe_tensor_parallel_size: expected at most {}, one for each {} of the {} columns of "
        "an expert's products, found {}",
        settings.name, max, kernels::kPanelWidth, width, slices));
  }
  // FP8 and NVFP4 rows have scales over whole rows, but each slice returns only some columns.
  if (!kernels::is_coded(moe.combine_format())) return {};
  return invalid_input(fmt::format(
      "{}: moe_config.combine_dtype: expected AUTO or BF16 beside moe_tensor_parallel_size {}, "
      "found {}: results come back in slices, and the scales of that form are of whole rows",
      settings.name, slices, kernels::row_format_name(moe.combine_format())));
}

Status check_parts(const parallel::ParallelConfig& settings, const ModelConfig& config) {
  const auto refuse = [&](const char* key, int found, const std::string& reason) {
    return invalid_input(
        fmt::format("{}: {}: expected 1 for {}, found {}", settings.name, key, reason, found));
  };
  if (config.num_prediction_layers > 0 && settings.sizes.cp > 1) {
    return refuse(
        "context_parallel_size", settings.sizes.cp,
        "speculative_config.decoding_type MTP, whose drafts are computed on the rank that "
        "holds a sequence");
  }
  const int groups = config.compressed.output_groups, tp = settings.sizes.tp;
  if (groups > 0 && tp > 1 && !settings.enable_attention_dp && groups % tp != 0) {
    return invalid_input(fmt::format(
        "{}: tensor_parallel_size: expected a divisor of the model's {} groups of heads that are "
        "projected together, found {}; set enable_attention_dp: true where none fits",
        settings.name, groups, tp));
  }
  const int stages = settings.sizes.pp;
  if (stages > config.num_layers) {
    return invalid_input(
        fmt::format("{}: pipeline_parallel_size: expected at most the model's {} layers, found {}",
                    settings.name, config.num_layers, stages));
  }
  for (int stage = 1; stage < stages; ++stage) {
    const int first = stage_layers(config, stage, stages).first;
    if (!config.layers[static_cast<size_t>(first)].shares_index) continue;
    return refuse(
        "pipeline_parallel_size", stages,
        fmt::format("this model (or a number whose stages do not begin at layer {}, which "
                    "attends to the positions that the layer before it has chosen)",
                    first));
  }
  return {};
}

}  // namespace wideep::model
