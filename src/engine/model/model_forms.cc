// SPDX-License-Identifier: Apache-2.0
//
// Matrices with the same input share a form (loader.common_form), because rows are cast to operands
// once for all of them; layers may differ from each other. Experts have one form for the whole
// model, so the shape is found from all of them.
#include "model/model_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace wideep::model {
namespace {

using weights::MatrixForm;
using weights::WeightLoader;

// One form for all of the layer's matrices of this use, so that their input is cast once. The form
// of `by_default` if it has none.
MatrixForm form_of(const WeightLoader& loader, const std::vector<ListedTensor>& tensors,
                   TensorUse use, const MatrixForm& by_default) {
  std::vector<WeightLoader::NameAndWidth> matrices;
  for (const ListedTensor& tensor : tensors) {
    if (tensor.use == use) matrices.push_back({tensor.name, static_cast<int>(tensor.shape[1])});
  }
  return matrices.empty() ? by_default : loader.common_form(matrices);
}

}  // namespace

MatrixForm ModelForms::of(int layer, TensorUse use) const {
  const LayerForms& forms = layers[static_cast<size_t>(layer)];
  switch (use) {
    case TensorUse::kInput:
      return forms.input;
    case TensorUse::kGates:
      return forms.gates;
    case TensorUse::kQueryB:
      return forms.q_b;
    case TensorUse::kIndexQuery:
      return forms.index_query;
    case TensorUse::kIndexKey:
      return forms.index_key;
    case TensorUse::kOutput:
      return forms.output;
    case TensorUse::kPrediction:
      return forms.prediction;
    case TensorUse::kLatentIn:
      return forms.latent_in;
    case TensorUse::kLatentOut:
      return forms.latent_out;
    case TensorUse::kMlp:
      return forms.mlp;
    case TensorUse::kExpert:
      return experts;
    case TensorUse::kHead:
      return lm_head;
    case TensorUse::kEmbedding:
    case TensorUse::kLatent:  // never quantised: their blocks would not match the heads
      return weights::default_form(row_dtype == Dtype::kF32 ? kernels::WeightFormat::kF32
                                                            : kernels::WeightFormat::kBf16);
    case TensorUse::kFloat:
    case TensorUse::kVector:
      break;
  }
  return weights::default_form(kernels::WeightFormat::kF32);
}

std::string ModelForms::format_names() const {
  std::vector<std::string_view> names = {kernels::weight_format_name(experts.format)};
  const auto add = [&](const MatrixForm& form) {
    const std::string_view name = kernels::weight_format_name(form.format);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  if (expert_down) add(*expert_down);
  for (const LayerForms& layer : layers) {
    for (const MatrixForm* form :
         {&layer.input, &layer.gates, &layer.q_b, &layer.index_query, &layer.index_key,
          &layer.output, &layer.mlp, &layer.prediction, &layer.latent_in, &layer.latent_out})
      add(*form);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

LayerForms layer_forms(const ModelConfig& config, int layer, const WeightLoader& loader) {
  const std::vector<ListedTensor> tensors = layer_tensors(config, layer);
  LayerForms forms;
  // Layers without a mixer have no such matrices.
  const MatrixForm mlp = form_of(loader, tensors, TensorUse::kMlp, {});
  forms.input = form_of(loader, tensors, TensorUse::kInput, mlp);
  forms.gates = form_of(loader, tensors, TensorUse::kGates, forms.input);
  forms.q_b = form_of(loader, tensors, TensorUse::kQueryB, forms.input);
  forms.index_query = form_of(loader, tensors, TensorUse::kIndexQuery, forms.input);
  forms.index_key = form_of(loader, tensors, TensorUse::kIndexKey, forms.input);
  forms.output = form_of(loader, tensors, TensorUse::kOutput, forms.input);
  forms.mlp = form_of(loader, tensors, TensorUse::kMlp, forms.input);
  forms.prediction = form_of(loader, tensors, TensorUse::kPrediction, forms.input);
  forms.latent_in = form_of(loader, tensors, TensorUse::kLatentIn, forms.mlp);
  forms.latent_out = form_of(loader, tensors, TensorUse::kLatentOut, forms.mlp);
  return forms;
}

ModelForms model_forms(const ModelConfig& config, const WeightLoader& loader) {
  const weights::ExpertShape experts = experts_shape(config, loader);
  ModelForms forms{.row_dtype = loader.row_dtype(),
                   .experts = {experts.format, experts.group},
                   .expert_down = experts.down_form,
                   .lm_head = loader.form(config.head_tensor(), config.hidden_size),
                   .layers = {}};
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    forms.layers.push_back(layer_forms(config, layer, loader));
  }
  return forms;
}

ModelForms uniform_forms(const ModelConfig& config, kernels::WeightFormat format) {
  const MatrixForm form = weights::default_form(format);
  return {.row_dtype = kernels::row_dtype(format),
          .experts = form,
          .expert_down = std::nullopt,
          .lm_head = form,
          .layers = std::vector<LayerForms>(
              static_cast<size_t>(config.num_all_layers()),
              {form, form, form, form, form, form, form, form, form, form})};
}

weights::ExpertShape experts_shape(const ModelConfig& config, const WeightLoader& loader,
                                   int num_slices) {
  std::vector<std::string> prefixes;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    if (!config.is_moe(layer)) continue;
    for (int expert = 0; expert < config.routing.num_experts; ++expert) {
      prefixes.push_back(expert_prefix(layer, expert));
    }
  }
  // Without experts the dense layers say of which kind the model is: rows and cache follow it.
  const bool dense = prefixes.empty();
  for (int layer = 0; dense && layer < config.num_layers; ++layer) {
    if (config.has_mlp(layer)) prefixes.push_back(fmt::format("model.layers.{}.mlp", layer));
  }
  const weights::ExpertShape shape =
      dense ? weights::expert_shape(loader, prefixes, config.hidden_size,
                                    config.dense_intermediate_size, config.dense_activation)
            : weights::expert_shape(loader, prefixes, config.expert_hidden_size(),
                                    config.moe_intermediate_size, config.activation);
  return experts_shape(config, MatrixForm{shape.format, shape.group}, num_slices, shape.down_form);
}

weights::ExpertShape experts_shape(const ModelConfig& config, const MatrixForm& form,
                                   int num_slices, const std::optional<MatrixForm>& down) {
  return {.format = form.format,
          .hidden = config.expert_hidden_size(),
          .intermediate = config.moe_intermediate_size,
          .group = form.group,
          .num_slices = num_slices,
          .biased = config.expert_bias,
          .activation = config.activation,
          .down_form = down};
}

}  // namespace wideep::model
