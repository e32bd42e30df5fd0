// SPDX-License-Identifier: Apache-2.0
#include "model/model_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace wideep::model {
namespace {

using weights::MatrixForm;
using weights::WeightLoader;

// One form for all matrices that multiply the layer's input, so that the input is cast once.
MatrixForm input_form(const ModelConfig& config, const WeightLoader& loader,
                      const std::string& attention) {
  const int hidden = config.hidden_size;
  if (!config.is_mla()) {
    return loader.common_form({{attention + "q_proj.weight", hidden},
                               {attention + "k_proj.weight", hidden},
                               {attention + "v_proj.weight", hidden}});
  }
  const char* query = config.q_lora_rank == 0 ? "q_proj.weight" : "q_a_proj.weight";
  return loader.common_form(
      {{attention + query, hidden}, {attention + "kv_a_proj_with_mqa.weight", hidden}});
}

MatrixForm mlp_form(const WeightLoader& loader, const std::string& prefix, int hidden,
                    int intermediate) {
  const weights::ExpertShape shape = expert_shape(loader, {prefix}, hidden, intermediate);
  return {shape.format, shape.group};
}

}  // namespace

std::string ModelForms::format_names() const {
  std::vector<std::string_view> names = {kernels::weight_format_name(experts.format)};
  const auto add = [&](const MatrixForm& form) {
    const std::string_view name = kernels::weight_format_name(form.format);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const LayerForms& layer : layers) {
    for (const MatrixForm* form : {&layer.input, &layer.q_b, &layer.output, &layer.mlp}) add(*form);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

LayerForms layer_forms(const ModelConfig& config, int layer, const WeightLoader& loader) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const int value_dim = config.is_mla() ? config.v_head_dim : config.head_dim;
  LayerForms forms;
  forms.input = input_form(config, loader, attention);
  forms.q_b = config.q_lora_rank == 0
                  ? forms.input
                  : loader.form(attention + "q_b_proj.weight", config.q_lora_rank);
  forms.output = loader.form(attention + "o_proj.weight", config.num_heads * value_dim);
  forms.mlp = forms.input;  // unused by a MoE layer without shared expert
  if (!config.is_moe_layer[layer]) {
    forms.mlp =
        mlp_form(loader, prefix + "mlp", config.hidden_size, config.dense_intermediate_size);
  } else if (config.num_shared_experts > 0) {
    forms.mlp = mlp_form(loader, prefix + "mlp.shared_experts", config.hidden_size,
                         config.num_shared_experts * config.moe_intermediate_size);
  }
  return forms;
}

ModelForms model_forms(const ModelConfig& config, const WeightLoader& loader) {
  const weights::ExpertShape experts = experts_shape(config, loader);
  ModelForms forms{.row_dtype = loader.row_dtype(),
                   .experts = {experts.format, experts.group},
                   .lm_head = loader.form(config.head_tensor(), config.hidden_size),
                   .layers = {}};
  for (int layer = 0; layer < config.num_layers; ++layer) {
    forms.layers.push_back(layer_forms(config, layer, loader));
  }
  return forms;
}

ModelForms uniform_forms(const ModelConfig& config, kernels::WeightFormat format) {
  const MatrixForm form = weights::default_form(format);
  return {.row_dtype = kernels::row_dtype(format),
          .experts = form,
          .lm_head = form,
          .layers = std::vector<LayerForms>(config.num_layers, {form, form, form, form})};
}

std::string expert_prefix(int layer, int expert) {
  return fmt::format("model.layers.{}.mlp.experts.{}", layer, expert);
}

weights::ExpertShape experts_shape(const ModelConfig& config, const WeightLoader& loader,
                                   int num_slices) {
  std::vector<std::string> prefixes;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (!config.is_moe_layer[layer]) continue;
    for (int expert = 0; expert < config.routing.num_experts; ++expert) {
      prefixes.push_back(expert_prefix(layer, expert));
    }
  }
  weights::ExpertShape shape =
      weights::expert_shape(loader, prefixes, config.hidden_size, config.moe_intermediate_size);
  shape.num_slices = num_slices;
  return shape;
}

}  // namespace wideep::model
